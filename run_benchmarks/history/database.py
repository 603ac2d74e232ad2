"""Opens the history's database: SQLite, or whatever SQLAlchemy reaches, brought to the version of the tables first."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from protocol.masking import mask_text
from run_benchmarks.errors import HistoryError

MIGRATIONS = Path(__file__).with_name("migrations")
BUSY_SECONDS = 10.0
LOCK_KEY = 0x636C_6479  # of PostgreSQL's advisory lock, which orders writers as BEGIN IMMEDIATE does


class Database:
    """The history at an SQLAlchemy URL. Two controllers may write at once: one waits up to `busy_seconds`."""

    def __init__(self, url: str, busy_seconds: float = BUSY_SECONDS) -> None:
        self._busy = busy_seconds
        try:
            self._engine = create_engine(url)
        except (SQLAlchemyError, ImportError, ValueError) as error:
            raise HistoryError(f"history {mask_text(url)}: {error}") from error
        self.name = self._engine.url.render_as_string(hide_password=True)
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine, "connect", self._configure)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that no other writer is in, on tables of this version.

        Raises:
            HistoryError: the database cannot be written, or is of a later version.
        """
        with self._told(), self._engine.connect() as connection:
            self._begin(connection)
            self._upgrade(connection)
            yield connection
            connection.commit()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the tables, whoever writes; makes no file where there is none.

        Raises:
            HistoryError: the database is missing, cannot be read, has no tables yet, or is of another version.
        """
        with self._told():
            place = self._engine.url.database
            if self._engine.dialect.name == "sqlite" and place and place != ":memory:" and not Path(place).exists():
                raise HistoryError(f"history {self.name}: no such file; `run.py history --rebuild` makes it")
        with self._told(), self._engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN")
            elif connection.dialect.name == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ")
            found = MigrationContext.configure(connection).get_current_revision()
            if found != (head := self._script().get_current_head()):
                raise HistoryError(
                    f"history {self.name}: holds version {found or 'none'} of the tables, expected {head}; "
                    "`run.py history --rebuild` makes it"
                )
            yield connection

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OSError) as error:
            said = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            raise HistoryError(f"history {self.name}: {said}") from error

    def _configure(self, connection: object, _: object) -> None:
        """Begin no transaction behind our back; wait for another writer; honour foreign keys."""
        connection.isolation_level = None  # type: ignore[attr-defined]
        cursor = connection.cursor()  # type: ignore[attr-defined]
        cursor.execute(f"PRAGMA busy_timeout = {round(1000 * self._busy)}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    def _begin(self, connection: Connection) -> None:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK_KEY})")

    def _upgrade(self, connection: Connection) -> None:
        script = self._script()
        found = MigrationContext.configure(connection).get_current_revision()
        if found == script.get_current_head():
            return
        if found is not None and found not in {each.revision for each in script.walk_revisions()}:
            raise HistoryError(f"history {self.name}: is of a later version ({found}) than this program knows")
        config = self._config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    def _script(self) -> ScriptDirectory:
        return ScriptDirectory.from_config(self._config())

    @staticmethod
    def _config() -> Config:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        return config
