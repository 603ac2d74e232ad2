"""Defines the tables of the history; their versions are in migrations/. Times are epoch ms."""

import sqlalchemy as sa

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = sa.MetaData(naming_convention=NAMES)


def _belongs_to(table: str, *, primary: bool = True) -> sa.Column[int]:
    key = sa.ForeignKey(f"{table}s.id", ondelete="CASCADE")
    return sa.Column(f"{table}_id", sa.Integer, key, primary_key=primary, nullable=False)


# `owner`: the token of the result folder, which tells the runs of two head nodes of the same second apart.
RUNS = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("owner", sa.String(16), nullable=False),
    sa.Column("run_id", sa.String(32), nullable=False),
    sa.Column("folder", sa.Text, nullable=False),
    sa.Column("started_ms", sa.BigInteger, nullable=False),
    sa.Column("finished_ms", sa.BigInteger, nullable=False),
    sa.Column("verdict", sa.String(16), nullable=False),
    sa.UniqueConstraint("owner", "run_id"),
)
# `kind`: what has to be the same for two runs of a case to be one series: benchmark, device, size, settings.
# `provenance`: JSON, what may differ between them by name. `seconds`: of all its `rounds`.
CASES = sa.Table(
    "cases",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    _belongs_to("run", primary=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("device", sa.Text, nullable=False),
    sa.Column("verdict", sa.String(16), nullable=False),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("rounds", sa.Integer, nullable=False),
    sa.Column("provenance", sa.Text, nullable=False),
    sa.Index("ix_cases_name", "name"),
    sa.Index("ix_cases_run_id", "run_id"),
)
# `value`: the mean of the `rounds` that passed, in `unit`.
METRICS = sa.Table(
    "metrics",
    metadata,
    _belongs_to("case"),
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("unit", sa.String(50), nullable=False),
    sa.Column("better", sa.String(8), nullable=False),
    sa.Column("is_key", sa.Boolean, nullable=False),
    sa.Column("value", sa.Float, nullable=False),
    sa.Column("rounds", sa.Integer, nullable=False),
)
# `state`: in which the run left the host; None where it was not told.
HOSTS = sa.Table(
    "hosts",
    metadata,
    _belongs_to("run"),
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("state", sa.String(16)),
    sa.Column("reason", sa.Text, nullable=False),
)
# `share_below`: the share of the other hosts of the same case and run that are worse, from 0 to 1.
HOST_VALUES = sa.Table(
    "host_values",
    metadata,
    _belongs_to("case"),
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("metric", sa.String(200), primary_key=True),
    sa.Column("unit", sa.String(50), nullable=False),
    sa.Column("better", sa.String(8), nullable=False),
    sa.Column("value", sa.Float, nullable=False),
    sa.Column("share_below", sa.Float, nullable=False),
    sa.Index("ix_host_values_host", "host"),
)
