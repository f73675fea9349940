"""The build of the library: once, by one of many, and with one message where there is no compiler."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

INSTALL = "import paceline.virtual as virtual; virtual.install(2)"
BUILD = "from paceline.virtual.build import build_library; print(build_library())"


def start(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_without_a_compiler_there_is_one_clear_message(tmp_path: Path) -> None:
    code = f"try:\n    {INSTALL}\nexcept ValueError as error:\n    print(type(error).__name__, error)"
    out, err = start(code, XDG_CACHE_HOME=str(tmp_path), CXX="no-such-compiler").communicate()
    assert out.startswith("CompilerMissing virtual devices need a C++ compiler once")
    assert "Everything else in Paceline works without it" in out
    assert err == ""


def test_two_ranks_build_once(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    compiler = tmp_path / "compiler"
    # Slow enough for the second rank to arrive in the middle; what it builds is never loaded.
    script = f"""#!/bin/sh
echo "$@" >> {calls}
sleep 1
while [ "$1" != -o ]; do shift; done
echo library > "$2"
"""
    compiler.write_text(script)
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    ranks = [start(BUILD, XDG_CACHE_HOME=str(tmp_path / "cache"), CXX=str(compiler)) for _ in range(2)]
    results = [rank.communicate() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], results
    assert results[0][0] == results[1][0]
    assert len(calls.read_text().splitlines()) == 3  # two units and the link
    assert sum("building virtual devices" in err for _, err in results) == 1


def test_failing_compiler_is_quoted(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho too old >&2\nexit 1\n")
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    _, err = start(BUILD, XDG_CACHE_HOME=str(tmp_path / "cache"), CXX=str(compiler)).communicate()
    assert "CompilerFailed" in err
    assert "too old" in err
    assert not list((tmp_path / "cache").rglob("*.so"))


@pytest.mark.parametrize(
    ("compiler", "cache", "words"),
    [
        ("no-such-compiler", "cache", ["need a C++ compiler once"]),
        ("false", "cache", ["building virtual devices", "failed for torch"]),
        ("true", "file", ["cannot be written: Not a directory"]),
    ],
)
def test_run_says_once_why_it_cannot(tmp_path: Path, compiler: str, cache: str, words: list[str]) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "paceline", "run", "--virtual", "2", "--nproc", "2", str(__file__)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / cache), "CXX": compiler}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if line.startswith("paceline: ")]
    assert len(said) == len(words)
    assert all(word in line for word, line in zip(words, said, strict=True))
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.runs"))


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, paceline.virtual.build; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
