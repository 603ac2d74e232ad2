"""Runs alembic's migrations on the connection that run_benchmarks.history.database gives it."""

from alembic import context

from run_benchmarks.history.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transaction_per_migration=False,
)
context.run_migrations()
