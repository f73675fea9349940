"""Names of rows say what differs and nothing else."""

from synthetic import make_run

from paceline.report.labels import Labels, split_arguments
from paceline.study import Config


def test_arguments_are_split_into_options():
    assert split_arguments(["x", "--dim", "8", "--amp", "--lr=0.1", "--shift", "-2", "-v"]) == {
        "arguments": "x",
        "dim": "8",
        "amp": "yes",
        "lr": "0.1",
        "shift": "-2",
        "v": "yes",
    }


def test_only_what_varies_is_named():
    configs = [
        Config("train.py", ("--dim", "8", "--accum-steps", accum), world, "tuned")
        for accum in ("1", "4")
        for world in (1, 2)
    ]
    labels = Labels(configs)
    assert labels.columns() == ["ranks", "accum-steps"]
    assert [labels.name(config) for config in configs] == [
        "1 rank · accum-steps 1",
        "2 ranks · accum-steps 1",
        "1 rank · accum-steps 4",
        "2 ranks · accum-steps 4",
    ]


def test_programs_and_placements_are_named_where_they_vary():
    labels = Labels([Config("a.py", (), 1, "tuned"), Config("b.py", ("--amp",), 1, "plain")])
    assert labels.columns() == ["program", "ranks", "placement", "amp"]
    assert labels.name(Config("b.py", ("--amp",), 1, "plain")) == "b.py · 1 rank · plain · amp yes"
    assert labels.cells(Config("a.py", (), 1, "tuned")) == ["a.py", "1", "tuned", "–"]


def test_programs_are_named_without_their_folders_unless_two_are_alike():
    one, other = make_run(program="/a/train.py"), make_run(program="/b/bench.py")
    assert Labels([one, other]).name(other) == "bench.py · 1 rank"
    alike = make_run(program="/b/train.py")
    assert Labels([one, alike]).name(alike) == "/b/train.py · 1 rank"
