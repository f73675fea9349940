"""The command line: what it passes on, what it prints, how it ends. No rank is started."""

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import replace

import pytest
from synthetic import communication, make_run, memory

import paceline.measure as measuring
from paceline import cli
from paceline.run_key import hash_script
from paceline.store import Store

MODULES_TOO_SLOW_FOR_HELP = ("torch", "scipy", "numpy", "pydantic")


@pytest.fixture
def launched(monkeypatch):
    """Every launch as (config, options); the worlds in `launched.failing` fail."""

    class Launched(list):
        failing = ()

        def __call__(self, config, options, *, study, round, key, cores_per_rank, run_dir, on_progress):
            self.append((config, options))
            status = "failed" if config.world in self.failing else "ok"
            facts = {"communication": communication(exposed_s=0.004), "memory": memory(parameters=4096)}
            return make_run(
                world=config.world,
                step_times_s=[0.03 / config.world] * 30,
                facts=facts,
                round=round,
                arguments=config.arguments,
                placement=config.placement,
                program=config.program,
                study=study,
                key=key,
                status=status,
                cause=None if status == "ok" else "rank 1 raised ValueError: no",
                traceback=None if status == "ok" else "Traceback: the whole of it",
                wall_s=1.0,
                started=float(len(self)),
                script_hash=hash_script(config.program),
                versions={"torch": "2.13.0"},
            )

    fake = Launched()
    monkeypatch.setattr(measuring, "run_world", fake)
    monkeypatch.setattr(measuring, "usable_cores", lambda: [0, 1])
    return fake


@pytest.fixture
def paceline(tmp_path, monkeypatch, capsys):
    """Run a command in an empty folder with a train.py: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("PACELINE_STORE", raising=False)
    (tmp_path / "train.py").write_text("pass\n")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["paceline", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        code = ended.value.code
        return (0 if code is None else code), captured.out, captured.err

    return call


def test_all_after_the_script_is_the_scripts(paceline, launched):
    code, _, error = paceline(
        "run", "--rounds", "1", "train.py", "--steps", "7", "--", "-x", "--help", "--nproc", "9"
    )
    assert code == 0
    assert "--nproc stands behind train.py and goes to it" in error
    [(config, options)] = launched
    assert config.arguments == ("--steps", "7", "--", "-x", "--help", "--nproc", "9")
    assert (config.world, options.steps) == (1, 30)


def test_every_option_of_run_arrives(paceline, launched):
    code, _, error = paceline(
        "run", "--nproc", "1,2", "--sweep", "lr=1,2", "--sweep", "b=3", "--placement", "plain",
        "--steps", "10", "--warmup", "2", "--sampled", "1", "--to-end", "--step-marker", "AdamW",
        "--rounds", "2", "--timeout", "2m", "--device", "cpu",
        "--virtual", "2", "--virtual-memory", "1GiB", "--virtual-link", "1GB/s,5us",
        "--virtual-as-cuda", "--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", "h:1", "--rdzv-id", "i",
        "--rdzv-conf", "is_host=true", "--local-addr", "h", "--name", "all", "train.py",
    )  # fmt: skip
    assert code == 0, error
    assert len(launched) == 8
    assert {config.placement for config, _ in launched} == {"plain"}
    assert {config.arguments for config, _ in launched} == {("--lr", v, "--b", "3") for v in "12"}
    options = launched[0][1]
    given = {name: getattr(options, name) for name in options.__dataclass_fields__}
    assert given == {
        "steps": 10, "warmup": 2, "sampled": 1, "to_end": True, "step_marker": "AdamW",
        "timeout_s": 120.0, "device": "cpu",
        "virtual_devices": 2, "virtual_memory": "1GiB", "virtual_link": "1GB/s,5us", "virtual_as_cuda": True,
        "nnodes": "2", "node_rank": 1, "rdzv_endpoint": "h:1", "rdzv_id": "i", "rdzv_conf": "is_host=true",
        "local_addr": "h",
    }  # fmt: skip


def test_the_table_the_findings_and_where_things_are(paceline, launched):
    code, out, error = paceline("run", "--nproc", "1,2", "train.py")
    assert code == 0
    for expected in (
        "ranks",
        "speedup",
        "30.0",
        "15.0",
        "2.00",
        "Written to .paceline/store.sqlite",
        "paceline show train",
    ):
        assert expected in out
    assert "train: 2 configurations × 3 rounds, 6 runs to do" in error
    # One line to begin with and one per run, no more.
    assert len(error.splitlines()) == 7


def test_the_same_command_again_runs_nothing(paceline, launched):
    first = paceline("run", "--nproc", "1,2", "train.py")
    launched.clear()
    code, out, error = paceline("run", "--nproc", "1,2", "train.py")
    assert (code, list(launched)) == (0, [])
    assert out == first[1]
    assert "0 runs to do, 6 in the store already" in error
    paceline("run", "--nproc", "1,2", "--fresh", "train.py")
    assert len(launched) == 6


def test_a_failed_world_makes_exit_code_1_and_is_told(paceline, launched):
    launched.failing = (2,)
    code, out, error = paceline("run", "--nproc", "1,2", "train.py")
    assert code == 1
    assert "failed" in out
    assert "ank 1 raised ValueError: no" in " ".join(out.split())
    assert "paceline show --traceback train" in out
    assert "its files are in" in error
    assert "Traceback: the whole of it" in paceline("show", "--traceback", "train")[1]
    launched.failing = ()
    launched.clear()
    code, out, error = paceline("run", "--nproc", "1,2", "train.py")
    assert (code, list(launched)) == (1, [])
    assert "--retry runs it again" in error
    assert paceline("run", "--nproc", "1,2", "--retry", "train.py")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "trian.py"), "did you mean train.py?"),
        (("run", "--nproc", "two", "train.py"), "try --nproc 1,2"),
        (("run", "--nproc", "0", "train.py"), "the least is 1"),
        (("run", "--placement", "tunde", "train.py"), "did you mean 'tuned'?"),
        (("run", "--sweep", "lr", "train.py"), "NAME=VALUE"),
        (("run", "--until", "3", "train.py"), "try 3%"),
        (("run", "--until", "3%", "--rounds", "3", "train.py"), "exclude each other"),
        (("run", "--warmup", "0", "train.py"), "the least is 1"),
        (("run", "--timeout", "soon", "train.py"), "such as 90s"),
        (("run", "--timeout", "nan", "train.py"), "such as 90s"),
        (("run", "--nnodes", "2", "--rdzv-endpoint", "h:1", "--budget", "1h", "train.py"), "for one node"),
        (("run", "--json", "nowhere/o.json", "train.py"), "there is no folder nowhere"),
        (("run", "--json", ".", "train.py"), "--json . is a folder; name a file"),
        (("run", "--name", "a/b", "train.py"), "cannot name a study"),
        (("show", "x"), "There is no store at"),
        (("bench", "none.toml"), "cannot be read"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(paceline, launched, arguments, said):
    code, out, error = paceline(*arguments)
    assert (code, out, list(launched)) == (2, "", [])
    assert error.startswith("paceline: ")
    assert said in error
    assert "Traceback" not in error


def test_what_the_system_refuses_is_said_in_words(paceline, launched):
    paceline("run", "train.py")
    code, _, error = paceline("export", "train", "-o", "nowhere/x")
    assert (code, error) == (2, "paceline: nowhere/x: No such file or directory\n")


def test_a_link_such_as_dev_stdout_is_not_replaced_by_the_json(paceline, launched, tmp_path):
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    code, _, error = paceline("run", "--json", "stdout", "train.py")
    assert (code, list(launched)) == (2, [])
    assert "--json stdout is no ordinary file" in error
    assert (tmp_path / "stdout").is_symlink()


def test_debugging_shows_the_traceback(paceline, monkeypatch):
    monkeypatch.setenv("PACELINE_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["paceline", "run", "trian.py"])
    with pytest.raises(ValueError, match="did you mean"):
        cli.main()


def test_an_interrupt_says_how_to_go_on(paceline, launched, monkeypatch):
    calls = []

    def interrupted(*arguments, **keywords):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return launched(*arguments, **keywords)

    monkeypatch.setattr(measuring, "run_world", interrupted)
    code, out, error = paceline("run", "--nproc", "1,2", "train.py")
    assert (code, out) == (130, "")
    assert "what was measured is kept in .paceline/store.sqlite, and the same command goes on" in error
    with Store(".paceline/store.sqlite", readonly=True) as store:
        assert len(store.runs("train")) == 1


def test_bench_measures_a_file_and_keeps_it(paceline, launched, tmp_path):
    text = 'program = "train.py"\nworlds = [1, 2]\nrounds = 1\nsweep.lr = [1, 2]\n'
    (tmp_path / "mine.toml").write_text(text)
    code, out, _ = paceline("bench", "mine.toml")
    assert (code, len(launched)) == (0, 4)
    assert "lr" in out
    with Store(".paceline/store.sqlite", readonly=True) as store:
        [study] = store.studies()
    assert study.name == "mine"
    assert tomllib.loads(study.spec["toml"])["worlds"] == [1, 2]


def test_bench_shows_every_mistake(paceline, tmp_path):
    (tmp_path / "bad.toml").write_text('program = "train.py"\nstesp = 3\nworlds = [0]\n')
    code, _, error = paceline("bench", "bad.toml")
    assert code == 2
    assert "bad.toml:2:1: unknown key 'stesp'; did you mean 'steps'?" in error
    assert "bad.toml:3:11: a world of 0 ranks cannot run" in error


def test_json_and_export_agree(paceline, launched, tmp_path):
    paceline("run", "--nproc", "1,2", "--json", "o.json", "train.py")
    written = json.loads((tmp_path / "o.json").read_text())
    assert [run["world"] for run in written["runs"]] == [1, 2]
    assert json.loads(paceline("export", "train", "--format", "json")[1]) == written
    code, out, _ = paceline("export", "train", "-o", "o.csv")
    assert (code, out) == (0, "")
    assert (tmp_path / "o.csv").read_text().startswith("program,arguments,world")


def test_list_show_and_diff(paceline, launched):
    paceline("run", "--nproc", "1,2", "train.py")
    paceline("run", "--nproc", "1,2", "--name", "other", "train.py")
    assert "train.py" in paceline("list")[1]
    code, out, _ = paceline("show", "tr")
    assert code == 0
    for expected in (
        "warm-up steps",
        "phases of a step",
        "forward",
        "memory at peak",
        "params",
        "collectives",
    ):
        assert expected in out
    code, out, _ = paceline("diff", "train", "other")
    assert code == 0
    assert out.count("cannot tell") == 2
    code, _, error = paceline("show", "nothing")
    assert code == 2
    assert "holds no study 'nothing'" in error


def test_diff_tells_which_is_faster(paceline, launched, monkeypatch):
    paceline("run", "--nproc", "1", "train.py")

    def faster(*arguments, **keywords):
        run = launched(*arguments, **keywords)
        for rank in run.ranks:
            rank.series["step_time_s"] = [0.8 * seconds for seconds in rank.series["step_time_s"]]
        return run

    monkeypatch.setattr(measuring, "run_world", faster)
    paceline("run", "--nproc", "1", "--name", "quick", "train.py")
    out = paceline("diff", "train", "quick")[1]
    assert "1.25 ×" in out
    assert out.rstrip().endswith("faster")
    assert paceline("diff", "quick", "train")[1].rstrip().endswith("slower")
    # One launch each: nobody knows how much launches differ.
    paceline("run", "--nproc", "1", "--rounds", "1", "--name", "once", "train.py")
    assert paceline("diff", "train", "once")[1].rstrip().endswith("cannot tell")


def test_diff_says_where_ranks_took_turns(paceline, launched, monkeypatch):
    monkeypatch.setattr(
        measuring, "run_world", lambda *args, **keys: replace(launched(*args, **keys), oversubscribed=True)
    )
    for name in ("one", "other"):
        paceline("run", "--nproc", "2", "--name", name, "train.py")
    assert paceline("diff", "one", "other")[1].rstrip().endswith("cannot tell, oversubscribed")


def test_an_edited_script_is_not_mixed_with_what_it_was(paceline, launched, tmp_path):
    paceline("run", "--nproc", "1,2", "train.py")
    (tmp_path / "train.py").write_text("pass  # edited\n")
    paceline("run", "--nproc", "1,2", "--rounds", "1", "train.py")
    code, out, error = paceline("show", "train")
    assert code == 0
    assert "train.py, 1 round\n" in out
    assert "train: 6 runs of an older script or of other options are left out" in error


def test_another_store(paceline, launched, monkeypatch, tmp_path):
    paceline("run", "--store", "here.sqlite", "train.py")
    assert (tmp_path / "here.sqlite").exists()
    assert not (tmp_path / ".paceline").exists()
    monkeypatch.setenv("PACELINE_STORE", "here.sqlite")
    assert "train.py" in paceline("list")[1]


def test_doctor_prints_settings_and_json(paceline):
    code, out, _ = paceline("doctor", "--emit-env", "--cores-per-rank", "3")
    assert code == 0
    assert "export OMP_NUM_THREADS=3" in out
    described = json.loads(paceline("doctor", "--json")[1])
    assert described["cores"] >= 1
    assert "limits" in described
    assert "usable by ranks" in paceline("doctor")[1]


def test_version(paceline):
    from paceline import __version__

    assert paceline("--version") == (0, f"paceline {__version__}\n", "")


def test_no_colour_where_none_is_wanted(paceline, launched, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")  # pretends to be a terminal
    out = paceline("run", "--nproc", "1,2", "train.py")[1]
    # Bold and dim may stay; colours are 30 to 37 and 90 to 97.
    codes = {int(code) for found in re.findall(r"\x1b\[([0-9;]*)m", out) for code in found.split(";") if code}
    assert not codes & {*range(30, 38), *range(90, 98)}


def test_help_is_quick():
    """Heavy modules come with the commands that need them."""
    program = (
        "import sys; sys.argv = ['paceline', '--help']\n"
        "from paceline.cli import main\n"
        "try: main()\n"
        f"finally: assert not set(sys.modules) & set({MODULES_TOO_SLOW_FOR_HELP!r}), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
