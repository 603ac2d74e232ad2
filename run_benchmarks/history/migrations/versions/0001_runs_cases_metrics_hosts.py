"""The tables of runs, cases, metrics and hosts."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=16), nullable=False),
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("finished_ms", sa.BigInteger(), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("owner", "run_id", name="uq_runs"),
    )
    op.create_table(
        "cases",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_cases_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_cases"),
    )
    op.create_index("ix_cases_name", "cases", ["name"])
    op.create_index("ix_cases_run_id", "cases", ["run_id"])
    op.create_table(
        "hosts",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_hosts_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "host", name="pk_hosts"),
    )
    op.create_table(
        "host_values",
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("metric", sa.String(length=200), nullable=False),
        sa.Column("unit", sa.String(length=50), nullable=False),
        sa.Column("better", sa.String(length=8), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("share_below", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name="fk_host_values_case_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("case_id", "host", "metric", name="pk_host_values"),
    )
    op.create_index("ix_host_values_host", "host_values", ["host"])
    op.create_table(
        "metrics",
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("unit", sa.String(length=50), nullable=False),
        sa.Column("better", sa.String(length=8), nullable=False),
        sa.Column("is_key", sa.Boolean(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name="fk_metrics_case_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("case_id", "name", name="pk_metrics"),
    )


def downgrade() -> None:
    """Remove them."""
    for table in ("metrics", "host_values", "hosts", "cases", "runs"):
        op.drop_table(table)
