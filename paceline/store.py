"""The durable store: one SQLite file that only the launcher writes, append-only, one transaction per run.

`RunRecord`s enter and leave unchanged: raw samples are kept, derived numbers never. A run measured again
under the same key is added behind the older one, and readers see the newest. Killed at any instant, a
writer loses at most the run in flight. Try it: `paceline list --store PATH`.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np

from paceline.nearest import nearest_of
from paceline.record import RankRecord, RunRecord, Status
from paceline.store_file import StoreError, explained, open_store

__all__ = ["Store", "StoreError", "StudyInfo"]

# The columns of `run` are the fields of a RunRecord; those that are no plain value are kept as JSON.
RUN_COLUMNS = tuple(field.name for field in fields(RunRecord) if field.name != "ranks")
JSON_COLUMNS = frozenset({"arguments", "command", "options", "environment", "versions", "machine"})

NEWEST = "SELECT max(id) FROM run WHERE study = ? GROUP BY key"


@dataclass(frozen=True)
class StudyInfo:
    """One study, as `paceline list` shows it."""

    name: str
    begun: float  # unix time
    last: float  # unix time of its newest run's start, or of its beginning
    programs: tuple[str, ...]
    statuses: dict[Status, int]  # how many runs ended so, the newest of each key
    spec: dict[str, Any]  # what was asked for: the newest `begin_study`


class Store:
    """An open store, to use as a context manager. With `readonly=True` it never makes or changes the file."""

    def __init__(self, path: str | Path, *, readonly: bool = False) -> None:
        self.path = Path(path)
        self._connection = open_store(self.path, readonly=readonly)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def begin_study(self, name: str, spec: dict[str, Any]) -> None:
        """Keep what was asked for: the TOML's text, or the command. Resuming a study begins it again."""
        newest = "SELECT spec FROM study WHERE name = ? ORDER BY id DESC LIMIT 1"
        encoded = _encode(spec)
        with self._writing() as connection:
            row = connection.execute(newest, (name,)).fetchone()
            if row is None or row["spec"] != encoded:
                connection.execute(
                    "INSERT INTO study (name, begun, spec) VALUES (?, ?, ?)", (name, time.time(), encoded)
                )

    def add(self, run: RunRecord) -> None:
        """Append one run with all its samples, or nothing at all."""
        values = [
            _encode(getattr(run, column)) if column in JSON_COLUMNS else getattr(run, column)
            for column in RUN_COLUMNS
        ]
        places = ", ".join("?" * len(values))
        with self._writing() as connection:
            insert = f"INSERT INTO run ({', '.join(RUN_COLUMNS)}) VALUES ({places})"
            run_id = connection.execute(insert, values).lastrowid
            connection.executemany(
                'INSERT INTO rank (run_id, rank, start, notes, "end") VALUES (?, ?, ?, ?, ?)',
                ((run_id, r.rank, _encode(r.start), _encode(r.notes), r.end) for r in run.ranks),
            )
            connection.executemany(
                "INSERT INTO series (run_id, rank, metric, samples) VALUES (?, ?, ?, ?)",
                (
                    (run_id, rank.rank, metric, np.asarray(samples, "<f8").tobytes())
                    for rank in run.ranks
                    for metric, samples in rank.series.items()
                ),
            )
            connection.executemany(
                "INSERT INTO fact (run_id, rank, fact, data) VALUES (?, ?, ?, ?)",
                (
                    (run_id, rank.rank, fact, _encode(data))
                    for rank in run.ranks
                    for fact, data in rank.facts.items()
                ),
            )

    def keys(self, study: str) -> dict[str, Status]:
        """What has been measured already: key → status of its newest run."""
        query = f"SELECT key, status FROM run WHERE id IN ({NEWEST}) ORDER BY id"
        with self._reading() as connection:
            return {row["key"]: row["status"] for row in connection.execute(query, (study,))}

    def runs(self, study: str, *, superseded: bool = False) -> list[RunRecord]:
        """The runs of a study in the order they were added: the newest of each key, or the older ones too."""
        wanted = "SELECT id FROM run WHERE study = ?" if superseded else NEWEST
        runs: dict[int, RunRecord] = {}
        ranks: dict[tuple[int, int], RankRecord] = {}
        with self._reading() as connection:
            for row in connection.execute(f"SELECT * FROM run WHERE id IN ({wanted}) ORDER BY id", (study,)):
                runs[row["id"]] = _to_run(row)
            for row in connection.execute(f"SELECT * FROM rank WHERE run_id IN ({wanted})", (study,)):
                rank = RankRecord(row["rank"], json.loads(row["start"]), end=row["end"])
                rank.notes = json.loads(row["notes"])
                ranks[row["run_id"], row["rank"]] = rank
                runs[row["run_id"]].ranks.append(rank)
            for row in connection.execute(f"SELECT * FROM series WHERE run_id IN ({wanted})", (study,)):
                samples = np.frombuffer(row["samples"], "<f8").tolist()
                ranks[row["run_id"], row["rank"]].series[row["metric"]] = samples
            for row in connection.execute(f"SELECT * FROM fact WHERE run_id IN ({wanted})", (study,)):
                ranks[row["run_id"], row["rank"]].facts[row["fact"]] = json.loads(row["data"])
        return list(runs.values())

    def studies(self) -> list[StudyInfo]:
        """Every study, the one that was measured last at the end."""
        specs: dict[str, str] = {}
        times: dict[str, list[float]] = defaultdict(list)
        programs: dict[str, list[str]] = defaultdict(list)
        statuses: dict[str, Counter[Status]] = defaultdict(Counter)
        newest = "SELECT max(id) FROM run GROUP BY study, key"
        with self._reading() as connection:
            for row in connection.execute("SELECT name, begun, spec FROM study ORDER BY id"):
                specs[row["name"]] = row["spec"]
                times[row["name"]].append(row["begun"])
            query = f"SELECT study, program, status, started FROM run WHERE id IN ({newest}) ORDER BY id"
            for row in connection.execute(query):
                times[row["study"]].append(row["started"])
                programs[row["study"]].append(row["program"])
                statuses[row["study"]][row["status"]] += 1
        infos = [
            StudyInfo(
                name=name,
                begun=min(seen),
                last=max(seen),
                programs=tuple(dict.fromkeys(programs[name])),
                statuses=dict(statuses[name]),
                spec=json.loads(specs.get(name, "{}")),
            )
            for name, seen in times.items()
        ]
        return sorted(infos, key=lambda info: info.last)

    def find_study(self, prefix: str) -> str:
        """The one study of that name, or the only one that begins so."""
        names = sorted(info.name for info in self.studies())
        if prefix in names:
            return prefix
        matches = [name for name in names if name.startswith(prefix)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise StoreError(f"{prefix!r} may be any of {', '.join(matches)}: type more of the name.")
        if not names:
            raise StoreError(f"{self.path} holds no study yet. `paceline run` measures one.")
        raise StoreError(f"{self.path} holds no study {prefix!r}; {nearest_of(prefix, names)}")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """One state of the file for several queries, though another study may be writing."""
        with explained(self.path):
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # A full disk makes SQLite roll back by itself; a second rollback would hide that error.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def _to_run(row: sqlite3.Row) -> RunRecord:
    values = {name: json.loads(row[name]) if name in JSON_COLUMNS else row[name] for name in RUN_COLUMNS}
    return RunRecord(**{**values, "oversubscribed": bool(row["oversubscribed"])})


def _encode(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
