"""Defines the tables of the history; their versions are in migrations/. Times are epoch ms."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=NAMES)


def _belongs_to(table: str, *, primary: bool = True) -> Column[int]:
    key = ForeignKey(f"{table}s.id", ondelete="CASCADE")
    return Column(f"{table}_id", Integer, key, primary_key=primary, nullable=False)


# `owner`: the token of the result folder, which tells the runs of two head nodes of the same second apart.
RUNS = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("owner", String(16), nullable=False),
    Column("run_id", String(32), nullable=False),
    Column("folder", Text, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("finished_ms", BigInteger, nullable=False),
    Column("verdict", String(16), nullable=False),
    UniqueConstraint("owner", "run_id"),
)
# `kind`: what has to be the same for two runs of a case to be one series: benchmark, device, size, settings.
# `provenance`: JSON, what may differ between them by name. `seconds`: of all its `rounds`.
CASES = Table(
    "cases",
    metadata,
    Column("id", Integer, primary_key=True),
    _belongs_to("run", primary=False),
    Column("name", Text, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("device", Text, nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("seconds", Float, nullable=False),
    Column("rounds", Integer, nullable=False),
    Column("provenance", Text, nullable=False),
    Index("ix_cases_name", "name"),
    Index("ix_cases_run_id", "run_id"),
)
# `value`: the mean of the `rounds` that passed, in `unit`.
METRICS = Table(
    "metrics",
    metadata,
    _belongs_to("case"),
    Column("name", String(200), primary_key=True),
    Column("unit", String(50), nullable=False),
    Column("better", String(8), nullable=False),
    Column("is_key", Boolean, nullable=False),
    Column("value", Float, nullable=False),
    Column("rounds", Integer, nullable=False),
)
# `state`: in which the run left the host; None where it was not told.
HOSTS = Table(
    "hosts",
    metadata,
    _belongs_to("run"),
    Column("host", String(255), primary_key=True),
    Column("state", String(16)),
    Column("reason", Text, nullable=False),
)
# `share_below`: the share of the other hosts of the same case and run that are worse, from 0 to 1.
HOST_VALUES = Table(
    "host_values",
    metadata,
    _belongs_to("case"),
    Column("host", String(255), primary_key=True),
    Column("metric", String(200), primary_key=True),
    Column("unit", String(50), nullable=False),
    Column("better", String(8), nullable=False),
    Column("value", Float, nullable=False),
    Column("share_below", Float, nullable=False),
    Index("ix_host_values_host", "host"),
)
