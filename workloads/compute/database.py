"""Reads, writes and merges databases of compute times: SQLite files with one table.

Anyone's file may come in: it is opened read-only, must hold exactly our table and nothing that runs (views, triggers),
and each of its rows is checked before it is used.

One process at a time changes a database, by a lock beside it which ends with its holder: a change reads all rows and
replaces the file, so that two at once would lose rows of one of them. SQLite's own lock would be on the replaced file.
"""

import fcntl
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from workloads.compute import aiob_json, base_runs, gpu_tables
from workloads.compute.measurement import COLUMNS, ComputeDataError, ComputeTime, checked, read_table

PATIENCE_SECONDS = 60.0
"""How long a writer waits for another: a change of the largest database takes less."""
RETRY_SECONDS = 0.02


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Hold the lock of the database at `path`; its folder has to be there. The lock file is removed at the end.

    Raises:
        ComputeDataError: another process holds it for longer than PATIENCE_SECONDS, or it cannot be made.
    """
    lock = path.with_name(f".{path.name[:200]}.lock")
    try:
        descriptor = _held(lock, time.monotonic() + PATIENCE_SECONDS)
    except OSError as error:
        raise ComputeDataError(f"{path}: cannot be written: {lock.name} beside it: {error.strerror}") from None
    if descriptor is None:
        raise ComputeDataError(f"{path}: another process has been changing it for {PATIENCE_SECONDS:g} s")
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _held(lock: Path, until: float) -> int | None:
    """The open lock file, locked; None if it stays with another until then.

    Its holder removes it, so a lock counts only on the file that has the name still.
    """
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(descriptor, lock):
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(descriptor)
                return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(RETRY_SECONDS)


def _is_named(descriptor: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), lock.stat())
    except FileNotFoundError:
        return False


SHIPPED = Path(__file__).with_name("tables")
LARGEST_FILE = 1 << 30
MOST_ROWS = 1_000_000
LARGEST_ROW = 1 << 16
"""Bytes of a row that are read: a sound one has under 12 kB."""
_MAGIC = b"SQLite format 3\0"
_TABLE = (
    "CREATE TABLE measurement (device TEXT NOT NULL, op TEXT NOT NULL, shape TEXT NOT NULL, dtype TEXT NOT NULL, "
    "kernel TEXT NOT NULL, versions TEXT NOT NULL, ns REAL NOT NULL, spread REAL NOT NULL, count INTEGER NOT NULL, "
    "source TEXT NOT NULL, PRIMARY KEY (device, op, shape, dtype, kernel, versions, source, ns)) WITHOUT ROWID"
)
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM measurement LIMIT {MOST_ROWS + 1}"


def shipped() -> list[ComputeTime]:
    """The measurements that come with this program."""
    return [row for path in sorted(SHIPPED.glob("*.csv")) for row in read_table(path)]


def load(path: Path) -> list[ComputeTime]:
    """The measurements of a database, of a table in CSV, of a record of `aiob` in JSON, of a run of `base` by its
    folder, or of a table of aiconfigurator-core in parquet, or, by gpu-tables/<gpu>, of all of the installed package.

    Raises:
        ComputeDataError: the file is none of these, or a row of it is wrong.
    """
    if path.parts[:1] == (gpu_tables.EXTRA,) and not path.exists():
        return [row for table in gpu_tables.installed(path) for row in gpu_tables.read(table)]
    if path.is_dir():
        return base_runs.times(path)
    readers = {".csv": read_table, ".json": aiob_json.times, ".parquet": gpu_tables.read}
    reader = readers.get(path.suffix.lower())
    _check_file(path, table=reader is not None)
    if reader is not None:
        return reader(path)
    # immutable: SQLite looks for no journal beside the file and writes none.
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_ROW)
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            _check_schema(path, connection)
            rows = connection.execute(_SELECT).fetchall()
    except sqlite3.Error as error:
        raise ComputeDataError(f"{path}: is no sound SQLite database: {error}") from None
    if len(rows) > MOST_ROWS:
        raise ComputeDataError(f"{path}: has more than {MOST_ROWS} rows")
    return checked(path, rows)


def _check_file(path: Path, *, table: bool) -> None:
    if path.exists() and not path.is_file():
        # Opening a pipe would wait for a writer.
        raise ComputeDataError(f"{path}: is no regular file")
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ComputeDataError(f"{path}: {error.strerror}") from None
    if magic != _MAGIC and not table:
        raise ComputeDataError(f"{path}: is no SQLite database, and its name ends in none of .csv, .json and .parquet")
    if size > LARGEST_FILE:
        raise ComputeDataError(f"{path}: has {size} bytes; at most {LARGEST_FILE} are read")


def _check_schema(path: Path, connection: sqlite3.Connection) -> None:
    found = connection.execute("SELECT type, name, sql FROM sqlite_schema LIMIT 20").fetchall()
    if found != [("table", "measurement", _TABLE)]:
        names = ", ".join(f"{kind} {str(name)[:40]!r}" for kind, name, _ in found) or "nothing"
        raise ComputeDataError(
            f"{path}: is no database of compute times: expected the one table 'measurement' as `aicb compute merge` "
            f"makes it, found {names}"
        )


def write(path: Path, rows: Iterable[ComputeTime]) -> int:
    """Write a database completely or not at all, replacing `path`. Returns the number of its rows.

    Rows that are equal are one; rows of other versions, sources or times stay apart.

    Raises:
        ComputeDataError: the disk is full, or SQLite fails otherwise.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name[:40]}.", dir=path.parent) as folder:
        temporary = Path(folder) / path.name
        marks = ", ".join("?" * len(COLUMNS))
        try:
            with closing(sqlite3.connect(temporary)) as connection:
                connection.execute(_TABLE)
                connection.executemany(
                    f"INSERT OR IGNORE INTO measurement VALUES ({marks})", (row.values() for row in rows)
                )
                connection.commit()
                (count,) = connection.execute("SELECT count(*) FROM measurement").fetchone()
        except sqlite3.Error as error:
            raise ComputeDataError(f"{path}: cannot be written: {error}") from None
        temporary.replace(path)
    return int(count)


def merge(output: Path, inputs: Sequence[Path]) -> tuple[int, int]:
    """Write the measurements of all inputs, and of `output` if it is there, into `output`. Returns rows before, after.

    Raises:
        ComputeDataError: a file cannot be used; nothing is written then. All bad files are named.
    """
    rows, problems = list[ComputeTime](), list[str]()
    for path in inputs:
        try:
            rows += load(path)
        except ComputeDataError as error:
            problems.append(str(error))
    try:
        if problems and output.exists():
            load(output)
    except ComputeDataError as error:
        problems.append(str(error))
    if problems:
        raise ComputeDataError("\n".join(problems))
    return _add(output, rows)


def add(output: Path, rows: Iterable[ComputeTime]) -> int:
    """Add measurements to a database, which is made if it is not there. Returns the number of its rows.

    Raises:
        ComputeDataError: `output` is no such database.
    """
    return _add(output, rows)[1]


def _add(output: Path, rows: Iterable[ComputeTime]) -> tuple[int, int]:
    """Rows before and after. Of several processes at once each waits for the other, so that all their rows are kept."""
    output = output.resolve()
    output.parent.mkdir(parents=True, exist_ok=True)
    with only_writer(output):
        there = load(output) if output.exists() else []
        return len(there), write(output, [*there, *rows])
