"""Open the file of a store: is it ours, is it whole, is its version known, and how is it journalled.

A path enters, an open SQLite connection leaves, migrated when it was asked for to write. A file that is
newer than this program, damaged or not ours raises `StoreError` and keeps every byte.
Try it: `paceline list --store PATH`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

APPLICATION_ID = 0x70616365  # "pace", so that a store is told from any other SQLite file

# Entry i brings a store from version i to i + 1. Entries are never edited once released, only added.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE study (
            id INTEGER PRIMARY KEY, name TEXT NOT NULL, begun REAL NOT NULL, spec TEXT NOT NULL)""",
        """CREATE TABLE run (
            id INTEGER PRIMARY KEY, study TEXT NOT NULL, key TEXT NOT NULL, program TEXT NOT NULL,
            arguments TEXT NOT NULL, world INTEGER NOT NULL, placement TEXT NOT NULL, round INTEGER NOT NULL,
            status TEXT NOT NULL, source TEXT NOT NULL, cause TEXT, failed_rank INTEGER, last_line TEXT,
            traceback TEXT, oversubscribed INTEGER NOT NULL, started REAL NOT NULL, wall_s REAL NOT NULL,
            command TEXT NOT NULL, script_hash TEXT NOT NULL, git_commit TEXT, options TEXT NOT NULL,
            environment TEXT NOT NULL, versions TEXT NOT NULL, machine TEXT NOT NULL)""",
        "CREATE INDEX run_by_study ON run (study, key)",
        """CREATE TABLE rank (
            run_id INTEGER NOT NULL REFERENCES run, rank INTEGER NOT NULL, start TEXT NOT NULL,
            notes TEXT NOT NULL, "end" TEXT, PRIMARY KEY (run_id, rank)) WITHOUT ROWID""",
        # One little-endian float64 per step.
        """CREATE TABLE series (
            run_id INTEGER NOT NULL REFERENCES run, rank INTEGER NOT NULL, metric TEXT NOT NULL,
            samples BLOB NOT NULL, PRIMARY KEY (run_id, rank, metric)) WITHOUT ROWID""",
        """CREATE TABLE fact (
            run_id INTEGER NOT NULL REFERENCES run, rank INTEGER NOT NULL, fact TEXT NOT NULL,
            data TEXT NOT NULL, PRIMARY KEY (run_id, rank, fact)) WITHOUT ROWID""",
    ),
)

# A second study may be writing; a run's transaction takes milliseconds, a slow disk perhaps seconds.
BUSY_TIMEOUT_S = 60.0

# WAL needs memory shared between all writers, which files over a network do not give.
# Names are those of /proc/mounts, a leading "fuse." left off.
NETWORK_FILESYSTEMS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "davfs", "gcsfuse", "glusterfs", "gpfs", "lustre", "nfs", "nfs4",
    "orangefs", "panfs", "pvfs2", "rclone", "s3fs", "smb2", "smb3", "smbfs", "sshfs", "vboxsf",
    "virtiofs", "wekafs",
})  # fmt: skip


class StoreError(ValueError):
    """The store cannot be used as asked: one message for a person, and the file is as it was."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite raises inside the block into a `StoreError` that says what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "full" in text or "disk I/O" in text:
            advice = "Make room on that disk and start the same command again: only what is missing will run."
        elif "locked" in text or "busy" in text:
            advice = "Another program keeps it locked. Wait for it to end, or use another --store."
        elif "readonly" in text or "unable to open" in text:
            advice = "Check that you may write to the file and to its folder, or use another --store."
        else:
            advice = "It is damaged, or not a store of Paceline. Restore a copy, or use another --store."
        raise StoreError(f"{path}: {text}. {advice}") from error


def open_store(path: Path, *, readonly: bool) -> sqlite3.Connection:
    """Open the store at `path`; a writer makes it when it is missing and brings an older one up to date."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder; a store is one file, for example {path / 'paceline.db'}.")
    exists = path.exists() and path.stat().st_size > 0
    if not exists and readonly:
        raise StoreError(f"There is no store at {path}. `paceline run` makes one; --store says where it is.")
    if exists:
        _check_header(path)
    with explained(path):
        if not readonly:
            path.parent.mkdir(parents=True, exist_ok=True)
        connection = _connect(path, readonly=readonly)
        try:
            version = _check_version(connection, path)
            if readonly and version == 0:
                raise StoreError(f"The store at {path} is empty. `paceline run` fills it.")
            if readonly and version < len(MIGRATIONS):
                raise StoreError(
                    f"{path} has store version {version}, this Paceline reads {len(MIGRATIONS)}. "
                    "The next `paceline run` into it brings it up to date."
                )
            if not readonly:
                if exists:
                    _check_pages(connection)
                _set_journal(connection, path)
                _migrate(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def is_on_network(path: Path, mounts: str = "/proc/mounts") -> bool:
    """Whether `path` lies on a filesystem that other machines write to as well."""
    target = path.resolve()
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    deepest, kind = -1, ""
    for line in lines:
        _, mount_point, filesystem, *_ = line.split(" ")
        # The kernel writes blanks in names as octal escapes.
        mount = Path(mount_point.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
        # A later mount at the same place covers the earlier one.
        if target.is_relative_to(mount) and len(mount.parts) >= deepest:
            deepest, kind = len(mount.parts), filesystem
    return kind.removeprefix("fuse.") in NETWORK_FILESYSTEMS


def _connect(path: Path, *, readonly: bool) -> sqlite3.Connection:
    # A reader opens for writing too, and forbids it: a truly read-only one would leave log files behind.
    mode = "mode=rw" if readonly else "mode=rwc"
    if readonly and not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists():
        mode = "mode=ro&immutable=1"  # nobody writes there, and SQLite could not make its own files
    uri = f"file:{quote(str(path.resolve()))}?{mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    connection.row_factory = sqlite3.Row
    if readonly:
        connection.execute("PRAGMA query_only = ON")
    return connection


def _check_header(path: Path) -> None:
    """Judge the first 100 bytes before SQLite sees the file, since even looking may recover a journal."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise StoreError(
            f"{path} is damaged, or not a store of Paceline. It was not touched; use another --store."
        )
    version, application = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
    if application not in (0, APPLICATION_ID):
        raise StoreError(f"{path} belongs to another program. It was not touched; use another --store.")
    _refuse_newer(version, path)


def _check_version(connection: sqlite3.Connection, path: Path) -> int:
    """Check again through SQLite: the newest header may still be in the write-ahead log."""
    # One transaction, or a writer that makes the store right now is seen half-way.
    connection.execute("BEGIN")
    (num_tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    connection.execute("ROLLBACK")
    if application != APPLICATION_ID and num_tables:
        raise StoreError(f"{path} belongs to another program. It was not touched; use another --store.")
    _refuse_newer(version, path)
    return int(version)


def _refuse_newer(version: int, path: Path) -> None:
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer Paceline: its store version is {version}, "
            f"this one knows {len(MIGRATIONS)}. It was not touched; update Paceline, or use another --store."
        )


def _check_pages(connection: sqlite3.Connection) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(f"its pages do not fit together ({' '.join(verdict.split())})")


def _set_journal(connection: sqlite3.Connection, path: Path) -> None:
    wanted = "delete" if is_on_network(path) else "wal"
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
        # A change of mode needs the file for oneself, and SQLite's own timeout does not wait for that.
        try:
            connection.execute(f"PRAGMA journal_mode = {wanted}")
            return  # perhaps without effect: some filesystems have no log, and the old way serves them
        except sqlite3.OperationalError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)


def _migrate(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read once more under the lock: another writer may have done it meanwhile.
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
