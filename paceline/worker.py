"""One rank: runs a training script as `python script.py` would, with the probe listening.

Enters: a script and its arguments, and the launcher's spec.json named in the environment. Leaves:
rank{R}.jsonl beside the spec. The script finds its own sys.argv, __main__, import path, working
directory and environment; the probe comes when it imports torch, and torch is not imported before.

    PACELINE_SPEC=spec.json torchrun --nproc-per-node 2 -m paceline.worker train.py --dim 64
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from paceline.first_import import on_first_import
from paceline.probe.sink import Sink
from paceline.processes import die_with_parent
from paceline.record import LINE_END, LINE_EXCEPTION, LINE_NOTE, LINE_START, SAMPLED
from paceline.stacks import answer_with_stacks

if TYPE_CHECKING:
    from paceline.probe.sampling import Sampling

SPEC_VARIABLE = "PACELINE_SPEC"
WAIT_FOR_RANKS_S = 10.0  # longest wait for the others at the end: a dead rank must not hold the living


class Rank:
    """This process's place in the world, and what it does at its start and end."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.folder = Path(spec["out"])
        self.rank = int(os.environ.get("RANK", "0"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.local_world = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        cores = spec.get("cores") or []
        self.cores: list[int] = cores[self.local_rank] if self.local_rank < len(cores) else []
        # Load on a core that another rank shares cannot be told from the other rank's own.
        shared = {core for i, others in enumerate(cores) if i != self.local_rank for core in others}
        self.own_cores = [core for core in self.cores if core not in shared]
        self.sink = Sink(self.folder / f"rank{self.rank}.jsonl")
        self.sampling: Sampling | None = None  # None as long as the script has not imported torch
        self._hidden: dict[str, str] = {}
        self._exit = os._exit
        self._pid = os.getpid()

    def is_this_process(self) -> bool:
        """False in a forked child, which may run the script's end, and os._exit, as well."""
        return os.getpid() == self._pid

    def settle(self) -> None:
        """Before torch is imported: cores, and what happens when the launcher dies or asks."""
        if self.cores:
            os.sched_setaffinity(0, self.cores)
        die_with_parent(signal.SIGKILL)
        answer_with_stacks(self.folder / f"rank{self.rank}.stacks")

    def hide_launcher(self) -> None:
        """Leave the script the environment of plain torchrun."""
        os.environ.pop(SPEC_VARIABLE, None)
        added = self.spec.get("added_environment", [])
        self._hidden = {name: os.environ.pop(name) for name in added if name in os.environ}

    @contextlib.contextmanager
    def around_torch(self, script: str) -> Iterator[None]:
        """Show torch what was meant for it, unless the script has chosen itself, and attach the probe."""
        shown = self._hidden.keys() - os.environ.keys()
        os.environ.update((name, self._hidden[name]) for name in shown)
        try:
            yield
            self.attach_probe(script)
        finally:
            for name in shown:
                os.environ.pop(name, None)

    def attach_probe(self, script: str) -> None:
        import torch

        if self.spec.get("virtual"):
            from paceline import virtual

            wanted = self.spec["virtual"]
            virtual.install(
                devices=wanted["devices"],
                memory=wanted["memory"],
                link=wanted["link"],
                as_cuda=wanted["as_cuda"],
            )
        from paceline.probe.attach import attach

        # No word of accelerators: to ask about them starts them. The first step shows what the script uses.
        versions = {"python": sys.version.split()[0], "torch": torch.__version__}
        self.sink.write(LINE_START, threads=torch.get_num_threads(), versions=versions)
        on_done = (lambda: None) if self.spec["to_end"] else self.end_script
        self.sampling = attach(self.spec, self.sink, self.own_cores, self.wait_for_ranks, on_done)
        if self.spec.get("observer"):
            importlib.import_module(self.spec["observer"]).attach(self.sink, os.path.abspath(script))

    def write_start(self) -> None:
        self.sink.write(
            LINE_START,
            rank=self.rank,
            local_rank=self.local_rank,
            world=self.world,
            pid=self._pid,
            perf_s=time.perf_counter(),
            unix_s=time.time(),
            cores=sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        )

    def wait_for_ranks(self, stage: str) -> None:
        """Until every rank of this machine has come to `stage`, without using the script's process group."""
        (self.folder / f"rank{self.rank}.{stage}").touch()
        deadline = time.monotonic() + WAIT_FOR_RANKS_S
        while time.monotonic() < deadline:
            if len(list(self.folder.glob(f"rank*.{stage}"))) >= self.local_world:
                return
            time.sleep(0.005)

    def end_script(self) -> NoReturn:
        """All is measured: leave at this step boundary, without running any of the script's own endings."""
        self.sink.write(LINE_END, reason="steps done", exit_code=0)
        # A rank that leaves early would break its neighbour's last collective.
        self.wait_for_ranks("done")
        self.gather()
        # Children, such as a DataLoader's workers, are left to the agent: where they die before this process,
        # DataLoader's SIGCHLD handler raises in the script, whose own endings would run then.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._exit(0)
        raise AssertionError("os._exit returned")

    def gather(self) -> None:
        """With several machines, bring all ranks' files to the machine of rank 0."""
        if self.world == self.local_world:
            return
        from paceline.probe.gather import gather_files

        first = self.rank - self.local_rank
        try:
            gather_files(self.folder, self.rank, self.world, list(range(first, first + self.local_world)))
        except (RuntimeError, OSError) as error:  # torch's store errors are RuntimeErrors
            self.sink.write(LINE_NOTE, code="not_gathered", text=f"another machine did not answer: {error}")

    def script_ended(self, exit_code: int) -> None:
        if not self.is_this_process():
            return
        # Another thread that ends the process, as a watchdog does, must not wait for a device that hangs; nor
        # can it switch off what listens to the training thread.
        trains = threading.current_thread() is threading.main_thread()
        if trains and self.sampling is not None:
            self.sampling.script_ended()
        self.sink.write(LINE_END, reason="script ended", exit_code=exit_code)
        if trains:
            self.gather()

    def exit_after_keeping(self, status: int) -> NoReturn:
        """What stands in the place of os._exit."""
        try:
            self.script_ended(status)
        finally:  # it is the last resort of many a script: whatever happens above, the process ends here
            self._exit(status)
        raise AssertionError("os._exit returned")

    def script_raised(self, error: BaseException, script: str) -> None:
        self.write_exception(error, script)
        if self.sampling is not None and self.is_this_process():
            with contextlib.suppress(Exception):  # a broken device gives nothing more
                self.sampling.read_late_values()

    def write_exception(self, error: BaseException, script: str) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename == os.path.abspath(script)]
        at = own[-1] if own else (frames[-1] if frames else None)
        message = str(error)
        self.sink.write(
            LINE_EXCEPTION,
            type=type(error).__name__,
            message=message,
            traceback="".join(traceback.format_exception(error)),
            line=f"{at.filename}:{at.lineno}" if at else None,
            step=self.sampling.clock.step if self.sampling else 0,
            sampling=self.sampling is not None and self.sampling.clock.kind == SAMPLED,
            oom=isinstance(error, MemoryError)
            or type(error).__name__ == "OutOfMemoryError"
            or "can't allocate memory" in message,
        )


def run_script(script: str, arguments: list[str]) -> None:
    """Execute a file as the interpreter itself would: as __main__, which stays in place after it ends."""
    path = os.path.abspath(script)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__, __cached__=None)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def frames_of_script(error: BaseException) -> types.TracebackType | None:
    """The traceback as plain Python would print it: without main() and run_script()."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames


def main() -> None:
    """Measure the script named on the command line."""
    spec = json.loads(Path(os.environ[SPEC_VARIABLE]).read_text())
    rank = Rank(spec)
    rank.settle()
    script, arguments = sys.argv[1], sys.argv[2:]
    rank.write_start()
    rank.hide_launcher()
    on_first_import("torch", lambda: rank.around_torch(script))
    os._exit = rank.exit_after_keeping
    if spec.get("observer"):  # it also sees a script that fails before it imports torch
        importlib.import_module("torch")
    try:
        run_script(script, arguments)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        rank.script_ended(code)
        raise
    except BaseException as error:
        error.with_traceback(frames_of_script(error))
        rank.script_raised(error, script)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
    rank.script_ended(0)


if __name__ == "__main__":
    main()
