"""Measure a study: all configurations in turn, round by round, each run stored before the next begins.

In: a `Study` and an open store. Out: the study's runs, those of earlier starts included, since what
the store holds is not run again. A world that fails is a result like any other and the sweep goes on.
Exercise: `pytest tests/unit/test_measure.py`.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import itertools
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from paceline.analyse import interval_is_narrow, summarise
from paceline.launch import Progress, run_world
from paceline.machine import describe_machine, identify_machine, usable_cores
from paceline.record import RunRecord
from paceline.run_key import hash_script, run_key
from paceline.store import Store
from paceline.study import MIN_ROUNDS_UNTIL, Config, Study


@dataclass(frozen=True)
class Plan:
    """What a start of a study is about to do."""

    study: Study
    cores_per_rank: int
    num_missing: int  # runs to do; with `until` those of the first rounds
    num_kept: int  # runs that the store holds already
    kept_failures: list[RunRecord]  # those of them that failed


class Reporter(Protocol):
    """Who is told how a measurement goes on; durations are guesses from the runs so far."""

    def begin(self, plan: Plan, remaining_s: float | None) -> None: ...
    def begin_run(self, config: Config, round: int, run_dir: Path) -> None: ...
    def show_progress(self, config: Config, round: int, progress: Progress) -> None: ...
    def end_run(
        self, config: Config, record: RunRecord, run_dir: Path, remaining_s: float | None
    ) -> None: ...
    def say(self, text: str) -> None: ...


def measure(
    study: Study, store: Store, *, fresh: bool = False, retry: bool = False, reporter: Reporter
) -> list[RunRecord]:
    """The newest run of every key of the study, in the order of rounds and configurations."""
    runs_dir = store.path.with_suffix(".runs") / study.name
    with _claim(runs_dir):
        session = _Session(study, store, runs_dir, reporter)
        if not fresh:
            session.recall()
        session.sweep_away_leftovers()
        return session.run(retry=retry)


def cores_for_each_rank(study: Study, num_cores: int) -> int:
    """The same number in every world of a study, or the rows would compare different devices."""
    largest = study.largest_world or max(config.world for config in study.configs)
    return max(1, num_cores // largest)


@contextmanager
def _claim(runs_dir: Path) -> Iterator[None]:
    """Hold the study: two launchers that measure the same one would do every run twice."""
    runs_dir.mkdir(parents=True, exist_ok=True)
    with (runs_dir / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"the study {runs_dir.name!r} is being measured into this store right now; "
                "wait for it, or choose another --name"
            ) from None
        yield


@dataclass
class _Session:
    """One start of a study."""

    study: Study
    store: Store
    runs_dir: Path
    reporter: Reporter
    known: dict[str, RunRecord] = field(default_factory=dict)  # the newest run of each key
    wall_s: dict[Config, list[float]] = field(default_factory=dict)
    given_up: set[Config] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.cores_per_rank = cores_for_each_rank(self.study, len(usable_cores()))
        self.script_hashes = {config.program: hash_script(config.program) for config in self.study.configs}
        self.torch_version = importlib.metadata.version("torch")
        self.machine = identify_machine(describe_machine())

    def key(self, config: Config, round: int) -> str:
        return run_key(
            config,
            self.study.options,
            round,
            self.script_hashes[config.program],
            cores_per_rank=self.cores_per_rank,
            torch_version=self.torch_version,
            machine=self.machine,
        )

    def recall(self) -> None:
        """Take over what earlier starts measured."""
        runs = {record.key: record for record in self.store.runs(self.study.name)}
        for round in self.rounds():
            found = [
                (config, key) for config in self.study.configs if (key := self.key(config, round)) in runs
            ]
            for config, key in found:
                self.remember(config, runs[key])
            if not found and self.study.until is not None:
                return

    def rounds(self) -> Iterable[int]:
        return itertools.count(1) if self.study.until is not None else range(1, self.study.rounds + 1)

    def remember(self, config: Config, record: RunRecord) -> None:
        self.known[record.key] = record
        if record.status == "ok":
            self.wall_s.setdefault(config, []).append(record.wall_s)

    def sweep_away_leftovers(self) -> None:
        """Runs that a killed launcher left; those that failed are kept for whoever looks into them."""
        failed = {key for key, status in self.store.keys(self.study.name).items() if status != "ok"}
        for left in self.runs_dir.iterdir():
            if left.is_dir() and left.name not in failed:
                shutil.rmtree(left, ignore_errors=True)

    def run(self, *, retry: bool) -> list[RunRecord]:
        if retry:
            self.known = {key: record for key, record in self.known.items() if record.status == "ok"}
        self.give_up_on_what_failed()
        missing = self.missing(range(1, self.least_rounds() + 1))
        failures = [record for record in self.known.values() if record.status != "ok"]
        plan = Plan(self.study, self.cores_per_rank, len(missing), len(self.known), failures)
        self.reporter.begin(plan, self.expected_s(missing))
        started_s = time.monotonic()
        for round in self.rounds():
            if self.is_enough(round - 1) or self.budget_is_spent(round, time.monotonic() - started_s):
                break
            for config in self.rotated(round):
                if self.is_missing(config, round):
                    self.run_one(config, round)
        return sorted(self.known.values(), key=lambda record: (record.round, record.started))

    def rotated(self, round: int) -> list[Config]:
        """Another configuration begins each round: the first one finds the machine cooler than the rest."""
        shift = (round - 1) % len(self.study.configs)
        return self.study.configs[shift:] + self.study.configs[:shift]

    def is_missing(self, config: Config, round: int) -> bool:
        return config not in self.given_up and self.key(config, round) not in self.known

    def missing(self, rounds: range) -> list[Config]:
        return [
            config for round in rounds for config in self.rotated(round) if self.is_missing(config, round)
        ]

    def least_rounds(self) -> int:
        return self.study.rounds if self.study.until is None else MIN_ROUNDS_UNTIL

    def is_enough(self, rounds_done: int) -> bool:
        if self.study.until is None or rounds_done < MIN_ROUNDS_UNTIL:
            return False
        if len(self.given_up) == len(self.study.configs):
            return True
        return interval_is_narrow(summarise(list(self.known.values())), self.study.until)

    def budget_is_spent(self, round: int, spent_s: float) -> bool:
        """Begin no round that would not end in time: ratios need whole rounds. The first always runs."""
        budget_s = self.study.budget_s
        missing = self.missing(range(round, round + 1))
        if budget_s is None or round == 1 or not missing:
            return False
        if spent_s + (self.expected_s(missing) or 0.0) <= budget_s:
            return False
        self.reporter.say(
            f"the budget of {budget_s:g} s is spent after {round - 1} rounds; --budget raises it, "
            "and the same command goes on from here"
        )
        return True

    def expected_s(self, missing: list[Config]) -> float | None:
        """From the wall time of earlier runs, of other configurations where there is none of its own."""
        seen = [sum(wall_s) / len(wall_s) for wall_s in self.wall_s.values()]
        if not seen:
            return None
        others = sum(seen) / len(seen)
        means = (self.wall_s.get(config, [others]) for config in missing)
        return sum(sum(wall_s) / len(wall_s) for wall_s in means)

    def run_one(self, config: Config, round: int) -> None:
        key = self.key(config, round)
        run_dir = self.runs_dir / key
        shutil.rmtree(run_dir, ignore_errors=True)
        run_dir.mkdir(parents=True)
        self.reporter.begin_run(config, round, run_dir)
        record = run_world(
            config,
            self.study.options,
            study=self.study.name,
            round=round,
            key=key,
            cores_per_rank=self.cores_per_rank,
            run_dir=run_dir,
            on_progress=lambda progress: self.reporter.show_progress(config, round, progress),
        )
        self.store.add(record)
        self.remember(config, record)
        self.give_up_on_what_failed()
        missing = self.missing(range(1, max(round, self.least_rounds()) + 1))
        self.reporter.end_run(config, record, run_dir, self.expected_s(missing))
        if record.status == "ok":
            shutil.rmtree(run_dir, ignore_errors=True)

    def give_up_on_what_failed(self) -> None:
        """A configuration whose first run failed by its own fault would fail again."""
        for config in self.study.configs:
            first = self.known.get(self.key(config, 1))
            if first is not None and first.status != "ok" and not came_from_outside(first):
                self.given_up.add(config)


def came_from_outside(record: RunRecord) -> bool:
    """Whether someone's signal or a full disk ended the run, which says nothing about the next one."""
    signs = ("killed by SIGKILL", "killed by SIGTERM", "disk full")
    return record.status == "failed" and any(sign in (record.cause or "") for sign in signs)
