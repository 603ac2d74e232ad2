#!/usr/bin/env bash
# Runs every check and test, one after the other, and says at the end which failed: check.sh VENV lint|all.
# Exit code 0 only if all passed. A failing step does not keep the others from running.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
bin=$1/bin
what=$2
summary=()
failed=0
# A step that catches a Ctrl-C and leaves by itself, as mypy and pytest do, would else be followed by the next one.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

step() { # step NAME COMMAND...
    local name=$1 begin=$SECONDS verdict=ok
    shift
    echo
    echo "== $name: $*"
    "$@" || { verdict=FAILED && failed=1; }
    summary+=("$(printf '%-6s %-22s %4d s' "$verdict" "$name" $((SECONDS - begin)))")
}

images() { # what the cluster tests' hosts are made of; takes minutes on a bare machine
    "$bin/python" -m tests.cluster base-image && "$bin/python" -m tests.cluster wheelhouse &&
        "$bin/python" -m tests.cluster engine
}

finished() { # finished PID FILE: wait for a background command and print what it wrote
    wait "$1"
    local code=$?
    cat "$2"
    return $code
}

lacking=
if [ "$what" = all ] && lacking=$("$bin/python" -m tests.cluster needs); then
    written=$(mktemp)
    set -m # a process group of its own, which a Ctrl-C here can be passed on to
    images >"$written" 2>&1 &
    being_made=$!
    set +m
    trap 'kill -INT -- "-$being_made" 2>/dev/null; wait "$being_made"; rm -f "$written"' EXIT
fi

step "ruff check" "$bin/ruff" check .
step "ruff format" "$bin/ruff" format --check .
step "mypy" "$bin/mypy"
step "import contracts" "$bin/lint-imports"
if [ "$what" = all ]; then
    if [ -n "${being_made:-}" ]; then
        step "images" finished "$being_made" "$written"
    else
        echo
        echo "== the cluster tests will be skipped: they need $lacking"
    fi
    # A file stays on one worker: what its tests share is made once.
    step "unit tests" "$bin/python" -m pytest -n 2 --dist loadfile --durations 12 -m "not cluster and not nightly"
    step "cluster tests" "$bin/python" -m pytest -n 2 --dist loadfile --durations 12 -m "cluster and not alone and not nightly"
    step "cluster, one by one" "$bin/python" -m pytest --durations 12 -m "cluster and alone and not nightly"
fi

echo
printf '%s\n' "${summary[@]}"
exit $failed
