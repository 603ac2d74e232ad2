#!/usr/bin/env bash
# Takes down the test hosts of this checkout and removes caches and the virtual environment: clean.sh VENV.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
for folder in .cache/cluster .cache/testbed/bed; do
    if [ -d "$folder/hosts" ]; then
        "$venv/bin/python" -m tests.cluster down --purge --dir "$folder"
    fi
done
rm -rf .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage "$venv"
find . -name __pycache__ -type d -prune -exec rm -rf {} +
