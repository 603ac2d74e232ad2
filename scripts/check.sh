#!/usr/bin/env bash
# Runs every check and test, one after the other, and says at the end which failed: check.sh VENV lint|all.
# Exit code 0 only if all passed. A failing step does not keep the others from running.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
bin=$1/bin
what=$2
summary=()
failed=0

step() { # step NAME COMMAND...
    local name=$1 begin=$SECONDS verdict=ok
    shift
    echo
    echo "== $name: $*"
    "$@" || { verdict=FAILED && failed=1; }
    summary+=("$(printf '%-6s %-22s %4d s' "$verdict" "$name" $((SECONDS - begin)))")
}

step "ruff check" "$bin/ruff" check .
step "ruff format" "$bin/ruff" format --check .
step "mypy" "$bin/mypy"
step "import contracts" "$bin/lint-imports"
if [ "$what" = all ]; then
    if lacking=$("$bin/python" -m tests.cluster needs); then
        step "base image" "$bin/python" -m tests.cluster base-image
        step "wheelhouse" "$bin/python" -m tests.cluster wheelhouse
        step "image of the tests" "$bin/python" -m tests.cluster engine
    else
        echo
        echo "== the cluster tests will be skipped: they need $lacking"
    fi
    step "unit tests" "$bin/python" -m pytest -n 2 --dist loadgroup --durations 12 -m "not cluster"
    step "cluster tests" "$bin/python" -m pytest -n 2 --dist loadfile --durations 12 -m "cluster and not alone"
    step "cluster, one by one" "$bin/python" -m pytest --durations 12 -m "cluster and alone"
fi

echo
printf '%s\n' "${summary[@]}"
exit $failed
