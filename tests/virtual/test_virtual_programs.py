"""Programs on virtual devices: two ranks under torchrun, and a script under `python -m paceline.virtual`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", *command], env=environment, capture_output=True, text=True, timeout=100
    )


def test_ranks_train_by_ddp_and_fsdp(library: None) -> None:
    program = str(PROGRAMS / "two_ranks.py")
    done = run("torch.distributed.run", "--standalone", "--nproc-per-node=2", program)
    assert done.returncode == 0, done.stderr[-4000:]
    assert {"rank 0 agrees", "rank 1 agrees"} <= set(done.stdout.splitlines())
    assert "Time stats are currently only collected" not in done.stderr  # DDP finds its timer


def test_script_sees_the_devices(library: None, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, neighbour\n"
        "x = torch.ones(10, device='virtual:1').to('virtual:2')\n"
        "print(torch.accelerator.device_count(), sys.argv[1:], x.device)\n"
    )
    (tmp_path / "neighbour.py").write_text("")
    options = ("--devices", "3", "--memory", "1MiB", "--link", "1GB/s,1us", "--report")
    done = run("paceline.virtual", *options, str(script), "--lr", "0.1")
    assert done.stdout == "3 ['--lr', '0.1'] virtual:2\n", done.stderr
    copies = next(line.split() for line in done.stderr.splitlines() if line.startswith("virtual:1  →"))
    assert copies == ["virtual:1", "→", "virtual:2", "1", "40"]


def test_notebook_may_install_after_a_backward_pass(library: None) -> None:
    code = (
        "import torch, paceline.virtual as virtual\n"
        "w = torch.ones(2, requires_grad=True)\n"
        "w.sum().backward()\n"
        "virtual.install(devices=3)\n"
        "for place in ('virtual:0', 'virtual:2'):\n"
        "    (w.to(place) * 2).sum().backward()\n"
        "print(w.grad.tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[5.0, 5.0]\n", done.stderr


def test_spawned_processes_have_the_devices(library: None, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "ACCELERATOR = torch.accelerator.current_accelerator()  # at the top: before the function is called\n"
        "def work(rank):\n"
        "    x = torch.ones(2, device=f'cuda:{rank}')\n"
        "    print(f'{ACCELERATOR} {torch.accelerator.device_count()} {x.device}\\n', end='', flush=True)\n"
        "    torch.empty(2**20, device=x.device)\n"
        "if __name__ == '__main__':\n"
        "    torch.multiprocessing.spawn(work, nprocs=2)\n"
    )
    done = run("paceline.virtual", "--devices", "3", "--memory", "1MiB", "--as-cuda", str(script))
    said = set(done.stdout.splitlines())  # of one rank or both: the first to fail ends the other
    assert said, done.stderr
    assert said <= {"virtual 3 virtual:0", "virtual 3 virtual:1"}
    assert "has a total capacity of 1.00 MiB" in done.stderr


def test_users_mistakes_are_one_line(library: None, tmp_path: Path) -> None:
    for arguments, words in (
        (("--devices", "3", "missing.py"), "no file"),
        (("--devices", "300", __file__), "1 to 120"),
        (("--memory", "lots", __file__), "8GiB"),
    ):
        done = run("paceline.virtual", *arguments)
        assert done.returncode == 2
        assert words in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
