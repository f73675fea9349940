"""Rounds, resume, retries, budgets: with a launcher that is told what each run yields."""

import itertools
import os
import signal
from dataclasses import replace

import pytest
from synthetic import make_run

import paceline.measure as measuring
from paceline.measure import cores_for_each_rank, measure
from paceline.store import Store
from paceline.study import Options, build_study, expand


class Reporter:
    """Keeps what it is told."""

    def __init__(self):
        self.plans, self.remaining_s, self.said = [], [], []

    def begin(self, plan, remaining_s):
        self.plans.append(plan)
        self.remaining_s.append(remaining_s)

    def begin_run(self, config, round, run_dir):
        assert run_dir.is_dir()

    def show_progress(self, config, round, progress):
        pass

    def end_run(self, config, record, run_dir, remaining_s):
        assert run_dir.is_dir()
        self.remaining_s.append(remaining_s)

    def say(self, text):
        self.said.append(text)


class Launcher:
    """Stands in for `run_world`: what a configuration yields is set by its world."""

    def __init__(self):
        self.order = []  # (round, world, placement) of every launch
        self.cores = set()
        self.outcomes = {}  # world, or (world, round) → fields of the record
        self.step_times_s = lambda world, round: [0.02] * 30
        self.before = lambda: None

    def __call__(self, config, options, *, study, round, key, cores_per_rank, run_dir, on_progress):
        self.before()
        self.order.append((round, config.world, config.placement))
        self.cores.add(cores_per_rank)
        outcome = self.outcomes.get((config.world, round), self.outcomes.get(config.world, {}))
        return make_run(
            world=config.world,
            step_times_s=self.step_times_s(config.world, round),
            round=round,
            arguments=config.arguments,
            placement=config.placement,
            program=config.program,
            study=study,
            key=key,
            wall_s=2.0,
            started=float(len(self.order)),
            **outcome,
        )

    @property
    def worlds(self):
        return [world for _, world, _ in self.order]


@pytest.fixture
def launcher(monkeypatch):
    fake = Launcher()
    monkeypatch.setattr(measuring, "run_world", fake)
    monkeypatch.setattr(measuring, "usable_cores", lambda: [0, 1, 2, 3])
    return fake


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / ".paceline/store.sqlite") as opened:
        yield opened


@pytest.fixture
def make_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass\n")

    def make(worlds=(1, 2), **fields):
        placements = fields.pop("placements", ["tuned"])
        options = fields.pop("options", Options())
        return build_study(expand("train.py", [], worlds, {}, placements), options=options, **fields)

    return make


def test_rounds_interleave_and_rotate(launcher, store, make_study):
    records = measure(make_study((1, 2, 4), rounds=3), store, reporter=Reporter())
    assert launcher.order == [
        *[(1, world, "tuned") for world in (1, 2, 4)],
        *[(2, world, "tuned") for world in (2, 4, 1)],
        *[(3, world, "tuned") for world in (4, 1, 2)],
    ]
    assert [(record.round, record.world) for record in records] == [(r, w) for r, w, _ in launcher.order]
    assert len(store.runs("train")) == 9


def test_cores_per_rank_are_the_same_in_all_worlds(launcher, store, make_study):
    measure(make_study((1, 2), rounds=1), store, reporter=Reporter())
    assert launcher.cores == {2}
    assert cores_for_each_rank(make_study((1, 3)), 4) == 1
    assert cores_for_each_rank(make_study((1, 8)), 4) == 1


def test_the_same_command_again_runs_only_what_is_missing(launcher, store, make_study):
    measure(make_study(rounds=2), store, reporter=Reporter())
    launcher.order.clear()
    records = measure(make_study(rounds=3), store, reporter=(reporter := Reporter()))
    assert launcher.order == [(3, 1, "tuned"), (3, 2, "tuned")]
    assert len(records) == 6
    assert (reporter.plans[0].num_missing, reporter.plans[0].num_kept) == (2, 4)
    launcher.order.clear()
    assert len(measure(make_study(rounds=3), store, reporter=Reporter())) == 6
    assert launcher.order == []


def test_what_decides_the_result_is_measured_again(launcher, store, make_study, tmp_path):
    measure(make_study(rounds=1), store, reporter=Reporter())
    for change in (
        lambda: make_study(rounds=1, options=Options(steps=31)),
        lambda: make_study((1, 2, 4), rounds=1),  # fewer cores per rank: all rows, not only the new one
    ):
        launcher.order.clear()
        study = change()
        measure(study, store, reporter=Reporter())
        assert len(launcher.order) == len(study.configs)
    launcher.order.clear()
    measure(make_study(rounds=1, options=Options(timeout_s=10.0)), store, reporter=Reporter())
    assert launcher.order == []
    (tmp_path / "train.py").write_text("pass  # edited\n")
    measure(make_study(rounds=1), store, reporter=Reporter())
    assert len(launcher.order) == 2


def test_fresh_measures_everything_and_shows_the_newest(launcher, store, make_study):
    measure(make_study(rounds=1), store, reporter=Reporter())
    launcher.step_times_s = lambda world, round: [0.5] * 30
    records = measure(make_study(rounds=1), store, fresh=True, reporter=Reporter())
    assert len(launcher.order) == 4
    assert all(record.ranks[0].series["step_time_s"][10] == 0.5 for record in records)


def test_a_failed_world_is_stored_and_the_sweep_goes_on_without_it(launcher, store, make_study):
    launcher.outcomes[2] = {"status": "failed", "cause": "rank 1 raised ValueError"}
    records = measure(make_study((1, 2, 4), rounds=3), store, reporter=Reporter())
    assert sorted(launcher.worlds) == [1, 1, 1, 2, 4, 4, 4]
    assert [record.status for record in records if record.world == 2] == ["failed"]
    assert store.keys("train")[next(r.key for r in records if r.world == 2)] == "failed"


@pytest.mark.parametrize(
    "cause", ["rank 1 was killed by SIGKILL after 8 steps", "disk full: rank 0 could not write"]
)
def test_what_came_from_outside_is_tried_again_in_the_next_round(launcher, store, make_study, cause):
    launcher.outcomes[2, 1] = {"status": "failed", "cause": cause}
    records = measure(make_study(rounds=3), store, reporter=Reporter())
    assert launcher.worlds.count(2) == 3
    assert [record.status for record in records if record.world == 2] == ["failed", "ok", "ok"]


def test_failures_are_kept_and_mentioned_and_retried_on_demand(launcher, store, make_study):
    launcher.outcomes[2] = {"status": "hung", "cause": "no step for 300 s"}
    measure(make_study(rounds=2), store, reporter=Reporter())
    launcher.order.clear()
    launcher.outcomes.clear()
    measure(make_study(rounds=2), store, reporter=(reporter := Reporter()))
    assert launcher.order == []
    assert [record.cause for record in reporter.plans[0].kept_failures] == ["no step for 300 s"]
    records = measure(make_study(rounds=2), store, retry=True, reporter=Reporter())
    assert launcher.order == [(1, 2, "tuned"), (2, 2, "tuned")]
    assert all(record.status == "ok" for record in records)


def test_files_of_a_good_run_go_and_those_of_a_failed_one_stay(launcher, store, make_study):
    launcher.outcomes[2] = {"status": "failed", "cause": "rank 1 raised ValueError"}
    measure(make_study(rounds=1), store, reporter=Reporter())
    runs_dir = store.path.parent / "store.runs" / "train"
    [failed_key] = [key for key, status in store.keys("train").items() if status == "failed"]
    (runs_dir / "left-by-a-killed-launcher").mkdir()
    measure(make_study(rounds=1), store, reporter=Reporter())
    assert [path.name for path in runs_dir.iterdir() if path.is_dir()] == [failed_key]


def test_until_stops_when_the_intervals_are_narrow_and_not_before(launcher, store, make_study):
    measure(make_study(until=0.03), store, reporter=Reporter())
    assert launcher.worlds.count(1) == 3  # as quiet as can be, and still three rounds

    launcher.order.clear()
    levels = itertools.cycle([0.018, 0.020, 0.022])
    launcher.step_times_s = lambda world, round: [next(levels) if world == 2 else 0.02] * 30
    measure(make_study(until=0.08, name="noisy", budget_s=1e9), store, reporter=Reporter())
    # Student's interval of launches whose level varies by 10 %: half its width is 8 % from 8 launches on.
    assert 6 <= launcher.worlds.count(2) <= 12


def test_until_goes_on_from_what_the_store_holds(launcher, store, make_study):
    measure(make_study(rounds=2), store, reporter=Reporter())
    launcher.order.clear()
    measure(make_study(until=0.03), store, reporter=Reporter())
    assert launcher.order == [(3, 1, "tuned"), (3, 2, "tuned")]


def test_until_ends_when_every_configuration_failed(launcher, store, make_study):
    launcher.outcomes = {world: {"status": "failed", "cause": "syntax error"} for world in (1, 2)}
    measure(make_study(until=0.03), store, reporter=Reporter())
    assert launcher.worlds == [1, 2]


def test_the_budget_ends_before_a_round_that_would_exceed_it(launcher, store, make_study, monkeypatch):
    clock = itertools.count(step=1.0)
    now = [0.0]
    monkeypatch.setattr(measuring.time, "monotonic", lambda: now[0])

    def pass_time():
        now[0] += 2.0  # the wall time of each fake run
        next(clock)

    launcher.before = pass_time
    measure(make_study(rounds=9, budget_s=9.0), store, reporter=(reporter := Reporter()))
    assert len(launcher.order) == 4  # two rounds of 4 s; a third would end at 12 s
    assert "budget of 9 s is spent after 2 rounds" in reporter.said[0]


def test_the_first_round_always_runs(launcher, store, make_study):
    measure(make_study(rounds=3, budget_s=1e-9), store, reporter=Reporter())
    assert launcher.worlds == [1, 2]


def test_the_remaining_time_comes_from_the_runs_so_far(launcher, store, make_study):
    measure(make_study(rounds=2), store, reporter=(reporter := Reporter()))
    assert reporter.remaining_s == [None, 6.0, 4.0, 2.0, 0.0]
    measure(make_study(rounds=3), store, reporter=(again := Reporter()))
    assert again.remaining_s[0] == 4.0


def test_an_interrupt_keeps_what_was_measured(launcher, store, make_study):
    def interrupt():
        if len(launcher.order) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    launcher.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        measure(make_study(rounds=3), store, reporter=Reporter())
    assert len(store.runs("train")) == 3
    launcher.before = lambda: None
    launcher.order.clear()
    assert len(measure(make_study(rounds=3), store, reporter=Reporter())) == 6
    assert len(launcher.order) == 3


def test_two_launchers_do_not_measure_the_same_study_at_once(launcher, store, make_study):
    study = make_study(rounds=1)
    refused = []

    def measure_inside():
        with pytest.raises(ValueError, match="is being measured into this store right now") as caught:
            measure(study, store, reporter=Reporter())
        refused.append(caught.value)
        launcher.before = lambda: measure(replace(study, name="other"), store, reporter=Reporter())
        launcher.before, other = (lambda: None), launcher.before
        other()

    launcher.before = measure_inside
    measure(study, store, reporter=Reporter())
    assert len(refused) == 1
    assert {info.name for info in store.studies()} == {"train", "other"}
