"""The store keeps what it is given, and survives what happens to files and processes."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from threading import Barrier

import pytest
from synthetic import communication, make_rank, make_run

from paceline import store_file
from paceline.record import RankRecord, RunRecord
from paceline.store import Store, StoreError
from paceline.store_file import is_on_network


def full_run(**fields: object) -> RunRecord:
    """A run in which every field differs from its default."""
    values: dict[str, object] = {
        "source": "simulated",
        "status": "failed",
        "cause": "rank 1 raised ValueError",
        "failed_rank": 1,
        "last_line": "ValueError: é",
        "traceback": "Traceback …",
        "oversubscribed": True,
        "started": 1.7e9,
        "wall_s": 12.5,
        "command": ["python", "-m", "x"],
        "git_commit": "abc+",
        "environment": {"OMP_NUM_THREADS": "1"},
        "versions": {"torch": "2.13"},
        "machine": {"cores": [0, 1], "memory": {"bytes": 2**40}},
        **fields,
    }
    ranks = [
        make_rank(0, [0.02, 0.1 + 0.2, 1e-300], facts={"communication": communication()}),
        RankRecord(1, {"pid": 3}, {"loss": [1.0, math.inf]}, {}, [{"code": "no_samples", "text": "…"}], None),
    ]
    return make_run(world=2, arguments=["--dim", "8"], ranks=ranks, **values)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_a_run_comes_back_exactly_as_it_was_added(path: Path) -> None:
    run = full_run()
    with Store(path) as store:
        store.add(run)
    with Store(path, readonly=True) as store:
        assert store.runs(run.study) == [run]


def test_values_that_are_not_known_stay_so(path: Path) -> None:
    rank = RankRecord(
        0, series={"loss": [1.0, math.nan]}, facts={"memory": {"device_peak_bytes": None, "x": math.nan}}
    )
    with Store(path) as store:
        store.add(make_run(ranks=[rank]))
        (run,) = store.runs("synthetic")
    assert math.isnan(run.ranks[0].series["loss"][1])
    assert math.isnan(run.ranks[0].facts["memory"]["x"])


def test_a_key_measured_again_is_appended_and_the_newest_is_read(path: Path) -> None:
    with Store(path) as store:
        store.add(make_run(key="a", status="failed"))
        store.add(make_run(key="b"))
        store.add(make_run(key="a", wall_s=2.0))
        assert store.keys("synthetic") == {"b": "ok", "a": "ok"}
        assert [run.key for run in store.runs("synthetic")] == ["b", "a"]
        assert [run.status for run in store.runs("synthetic", superseded=True)] == ["failed", "ok", "ok"]
        assert store.keys("another") == {}


def test_studies_are_listed_with_what_was_asked_for(path: Path) -> None:
    with Store(path) as store:
        store.begin_study("first", {"command": ["paceline", "run"]})
        store.begin_study("second", {"toml": "x = 1"})
        store.begin_study("second", {"toml": "x = 2"})
        now = time.time()
        store.add(make_run(study="first", started=now + 10))
        store.add(make_run(study="first", started=now + 20, key="k", status="hung"))
        first, second = sorted(store.studies(), key=lambda info: info.name)
    assert first.statuses == {"ok": 1, "hung": 1}
    assert first.programs == ("train.py",)
    assert first.last == now + 20
    assert second.spec == {"toml": "x = 2"}
    assert second.statuses == {}


def test_the_study_measured_last_is_at_the_end(path: Path) -> None:
    with Store(path) as store:
        store.add(make_run(study="old", started=200.0))
        store.add(make_run(study="older", started=100.0))
        assert [info.name for info in store.studies()] == ["older", "old"]


def test_a_study_is_found_by_the_beginning_of_its_name(path: Path) -> None:
    with Store(path) as store:
        with pytest.raises(StoreError, match="no study yet"):
            store.find_study("x")
        for name in ("ddp-sweep", "ddp-memory", "ddp"):
            store.begin_study(name, {})
        assert store.find_study("ddp-s") == "ddp-sweep"
        assert store.find_study("ddp") == "ddp"
        with pytest.raises(StoreError, match="any of ddp-memory, ddp-sweep"):
            store.find_study("ddp-")
        with pytest.raises(StoreError, match="did you mean 'ddp-sweep'"):
            store.find_study("dpp-sweep")


def test_half_a_run_is_never_kept(path: Path) -> None:
    run = make_run()
    run.ranks[0].facts["memory"] = {"x": object()}
    with Store(path) as store:
        with pytest.raises(TypeError):
            store.add(run)
        assert store.runs("synthetic") == []
        store.add(make_run())


KILLED_WHILE_WRITING = """
import os, sys
sys.path.insert(0, sys.argv[2])
from synthetic import make_run
from paceline.store import Store
store = Store(sys.argv[1])
store.add(make_run(key="kept"))
store._connection.execute("BEGIN IMMEDIATE")
store._connection.execute("DELETE FROM series")
print("ready", flush=True)
os.read(0, 1)
"""


def test_a_writer_killed_in_a_transaction_loses_only_that(path: Path) -> None:
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, str(path), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        os.kill(writer.pid, signal.SIGKILL)
    with Store(path) as store:
        (run,) = store.runs("synthetic")
        assert run == make_run(key="kept")


def add_many(path: Path, study: str, num_runs: int, start: Barrier) -> None:
    start.wait()
    with Store(path) as store:
        for index in range(num_runs):
            store.add(make_run(study=study, key=str(index)))


def test_several_studies_may_write_into_one_new_store_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    names = ["one", "two", "three", "four", "five", "six"]
    # Making the store is where they would collide, so it is made several times.
    for attempt in range(8):
        path = tmp_path / f"{attempt}.db"
        start = context.Barrier(len(names))
        writers = [context.Process(target=add_many, args=(path, name, 4, start)) for name in names]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert [writer.exitcode for writer in writers] == [0] * len(names)
        with Store(path, readonly=True) as store:
            assert [len(store.runs(name)) for name in names] == [4] * len(names)


def test_a_reader_sees_the_store_while_it_is_written(path: Path) -> None:
    with Store(path) as writer, Store(path, readonly=True) as reader:
        writer.add(make_run())
        assert len(reader.runs("synthetic")) == 1
        with pytest.raises(StoreError, match="readonly"):
            reader.add(make_run())


def test_reading_a_store_that_is_not_there_makes_none(path: Path) -> None:
    with pytest.raises(StoreError, match="no store at"):
        Store(path, readonly=True)
    assert not path.exists()


def test_a_reader_leaves_no_files_behind(path: Path) -> None:
    with Store(path) as store:
        store.add(make_run())
    with Store(path, readonly=True) as store:
        store.runs("synthetic")
    assert os.listdir(path.parent) == [path.name]


def test_a_store_in_a_folder_that_nobody_may_write_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(path) as store:
        store.add(make_run())
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Store(path, readonly=True) as store:
        assert len(store.runs("synthetic")) == 1
        assert os.listdir(path.parent) == [path.name]


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        Store(tmp_path)


@pytest.mark.parametrize("readonly", [True, False])
def test_a_newer_store_is_refused_untouched(path: Path, readonly: bool) -> None:
    with Store(path) as store:
        store.add(make_run())
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer Paceline: its store version is 99"):
        Store(path, readonly=readonly)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def damage_header(content: bytes) -> bytes:
    return b"XXXX" + content[4:]


def damage_pages(content: bytes) -> bytes:
    return content[:4096] + b"\xff" * 8192 + content[12288:]


def cut_in_half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def not_a_store(_: bytes) -> bytes:
    return b"hello"


@pytest.mark.parametrize("damage", [damage_header, damage_pages, cut_in_half, not_a_store])
def test_a_damaged_store_is_refused_untouched(path: Path, damage: object) -> None:
    with Store(path) as store:
        for index in range(10):
            store.add(make_run(key=str(index)))
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    before = path.read_bytes()
    with pytest.raises(StoreError, match="damaged") as raised:
        Store(path)
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == before
    with pytest.raises(StoreError, match="damaged"), Store(path, readonly=True) as store:
        store.runs("synthetic")
    assert path.read_bytes() == before


def test_the_file_of_another_program_is_refused_untouched(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE run (id)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store(path)
    assert path.read_bytes() == before


def test_an_older_store_is_brought_up_to_date_by_a_writer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(path) as store:
        store.add(make_run())
    step = ("ALTER TABLE study ADD COLUMN comment TEXT",)
    monkeypatch.setattr(store_file, "MIGRATIONS", (*store_file.MIGRATIONS, step))
    with pytest.raises(StoreError, match="brings it up to date"):
        Store(path, readonly=True)
    with Store(path) as store:
        assert len(store.runs("synthetic")) == 1
        store._connection.execute("SELECT comment FROM study")


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(path):
        pass
    steps = ("ALTER TABLE study ADD COLUMN comment TEXT", "NOT SQL")
    monkeypatch.setattr(store_file, "MIGRATIONS", (*store_file.MIGRATIONS, steps))
    with pytest.raises(StoreError):
        Store(path)
    monkeypatch.undo()
    with Store(path) as store, pytest.raises(sqlite3.OperationalError, match="no such column"):
        store._connection.execute("SELECT comment FROM study")


MOUNTS = r"""/dev/sda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb /home/local ext4 rw 0 0
lustre /big\040data lustre rw 0 0
server:/x /mnt/far nfs rw 0 0
/dev/sdc /mnt ext4 rw 0 0
"""


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("/x.db", False),
        ("/home/me/x.db", True),
        ("/home/local/x.db", False),
        ("/homes/x.db", False),
        ("/big data/x", True),
        ("/mnt/far/x", True),
        ("/mnt/x", False),
    ],
)
def test_filesystems_over_a_network_are_recognised(tmp_path: Path, place: str, expected: bool) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert is_on_network(Path(place), str(mounts)) is expected


@pytest.mark.parametrize(("network", "mode"), [(False, "wal"), (True, "delete")])
def test_no_write_ahead_log_over_a_network(
    path: Path, monkeypatch: pytest.MonkeyPatch, network: bool, mode: str
) -> None:
    monkeypatch.setattr(store_file, "is_on_network", lambda _: network)
    with Store(path) as store:
        store.add(make_run())
        assert store._connection.execute("PRAGMA journal_mode").fetchone()[0] == mode
