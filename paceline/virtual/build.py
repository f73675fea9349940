"""Compiles the C++ of the virtual devices, once per version of PyTorch and of these sources.

Enters: `native/*.cpp`, the machine's C++ compiler, the headers inside the torch package.
Leaves: the path of a shared library in the user's cache directory. Torch itself is loaded only to build.
Exercise: `python -m paceline.virtual.build`
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

SOURCES = Path(__file__).parent / "native"
OPTIONS = ("-std=c++20", "-O2", "-fPIC", "-w")


class CompilerMissing(ValueError):
    """There is no C++ compiler, so virtual devices cannot be built here."""


class CompilerFailed(ValueError):
    """The compiler refused the sources: it is too old, or this PyTorch is not one that they know."""


class CacheUnusable(ValueError):
    """There is no place to keep a built library."""


def find_compiler() -> list[str] | None:
    """The command of a C++ compiler: `$CXX` if it is set, else the first one on the path."""
    if named := os.environ.get("CXX"):
        command = shlex.split(named)
        return command if shutil.which(command[0]) else None
    found = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
    return [found] if found else None


def cache_directory() -> Path:
    """Where built libraries are kept."""
    usual = "Library/Caches" if sys.platform == "darwin" else ".cache"
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / usual
    return Path(root, "paceline", "virtual")


def build_library() -> Path:
    """The library for this PyTorch, built now if it never was."""
    directory = cache_directory() / _build_key()
    library = directory / "libpaceline_virtual.so"
    if library.exists():
        return library
    compiler = find_compiler()
    if compiler is None:
        raise CompilerMissing(
            "virtual devices need a C++ compiler once, and there is none on this machine. "
            "Install one (Debian, Ubuntu: apt install g++; macOS: xcode-select --install), or name it in "
            "CXX. Everything else in Paceline works without it."
        )
    with _lock(directory):
        if not library.exists():  # another rank may have built it while this one waited
            _build(compiler, library)
    return library


def _build_key() -> str:
    """Names everything that the library's code and its binary interface depend on."""
    digest = hashlib.sha256()
    for source in (Path(__file__), *sorted(SOURCES.glob("*.*"))):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    digest.update(repr(os.environ.get("CXX")).encode())
    python = sys.implementation.cache_tag
    return f"torch-{_torch_version()}-{python}-{platform.machine()}-{digest.hexdigest()[:16]}"


def _torch_version() -> str:
    return importlib.metadata.version("torch")


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / "lock").open("w")
    except OSError as error:
        raise CacheUnusable(
            f"virtual devices are built once and kept in {cache_directory()}, which cannot be written: "
            f"{error.strerror}. Make it writable, or name another folder in XDG_CACHE_HOME."
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(compiler: list[str], library: Path) -> None:
    _say(f"building virtual devices for torch {_torch_version()} (once, about a minute)")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        _write_unchecked_operators(Path(scratch, "unchecked_operators.inc"))
        units = _write_units(Path(scratch))
        with ThreadPoolExecutor(len(units)) as pool:
            objects = list(pool.map(lambda unit: _compile(compiler, unit), units))
        whole = Path(scratch, library.name)
        _run([*compiler, "-shared", *map(str, objects), *_link_options(), "-o", str(whole)])
        os.replace(whole, library)  # never half a library under the name that others look for
    _say(f"  built in {time.monotonic() - started:.0f} s: {library}")


def _write_units(directory: Path) -> list[Path]:
    """What the compiler is given: two files that include the sources, to be compiled side by side.

    PyTorch's headers cost ten times what our code costs, so the sources share them. Autocast
    instantiates hundreds of templates and weighs as much as all the rest.
    """
    sources = sorted(SOURCES.glob("*.cpp"))
    groups = {
        "autocast": [source for source in sources if source.name == "autocast.cpp"],
        "devices": [source for source in sources if source.name != "autocast.cpp"],
    }
    units = []
    for name, members in groups.items():
        unit = directory / f"{name}.cpp"
        unit.write_text("".join(f'#include "{source}"\n' for source in members), encoding="utf-8")
        units.append(unit)
    return units


def _write_unchecked_operators(path: Path) -> None:
    """Names the operators that on CUDA leave it to their kernels where their arguments may be."""
    declarations = _folder_of("torchgen") / "packaged/ATen/native/native_functions.yaml"
    entries = declarations.read_text(encoding="utf-8").split("\n- func: ")
    names = [entry.split("(")[0] for entry in entries if "\n  device_check: NoCheck" in entry]
    path.write_text("".join(f'"aten::{name}",\n' for name in names), encoding="utf-8")


def _compile(compiler: list[str], unit: Path) -> Path:
    import torch

    headers = _folder_of("torch") / "include"
    # Not from torch.utils.cpp_extension: it takes long to import and warns where CUDA is missing.
    includes = ["-isystem", str(headers), "-isystem", str(headers / "torch/csrc/api/include")]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    target = unit.with_suffix(".o")
    _run([*compiler, *OPTIONS, abi, f"-I{unit.parent}", *includes, "-c", str(unit), "-o", str(target)])
    return target


def _link_options() -> list[str]:
    libraries = str(_folder_of("torch") / "lib")
    return [f"-L{libraries}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{libraries}"]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompilerFailed(
            f"building virtual devices failed for torch {_torch_version()}; "
            "they need a compiler that knows C++20 and torch 2.11 to 2.13. The compiler said:\n"
            f"{shlex.join(command)}\n{done.stderr[:3000]}"
        )


def _say(text: str, end: str = "\n") -> None:
    print(f"paceline: {text}", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(build_library())
