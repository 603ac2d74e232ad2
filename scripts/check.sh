#!/usr/bin/env bash
# Runs checks and tests, one after the other, and says at the end which failed:
# check.sh VENV lint|quick|coverage|test|nightly, or check.sh VENV package NAME.
#
# lint      style, types, import contracts
# quick     lint, and the short tests that need neither torch nor hosts: of files within the default of tests/budgets.toml
# coverage  all tests that need neither torch nor hosts; fails below the floor of coverage (pyproject.toml)
# test      lint, and every test that proves the product: what CI runs
# package   the tests of the folders of that name below tests/, such as network, simulation/network or run_benchmarks
# nightly   the same with many more samples, the tests that take long, coverage, and the mutants of tests/mutants.toml
#
# quick, test and nightly lint beside the first tests. Exit code 0 only if all passed. A failing step does not keep the others from running. Tests that failed beside others
# run once more, alone and in their order: one that waits for hosts on a busy machine may pass then, and is named as such.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
# Else each of the hundreds of processes that tests start compiles the product's modules again.
unset PYTHONDONTWRITEBYTECODE
bin=$1/bin
what=$2
summary=()
# More failures than this are no chance.
MOST_AGAIN=8
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

paddle() { # an environment of its own for bert:paddle, about 1 GB
    [ -x .cache/paddle/bin/python ] || scripts/make_venv.sh .cache/paddle || return
    scripts/install.sh .cache/paddle paddle
}

cuda() { # an environment with torch's build for CUDA, whose classes are looked at without a driver, 5 GB
    [ -x .cache/cuda/bin/python ] || scripts/make_venv.sh .cache/cuda || return
    scripts/install.sh .cache/cuda cuda
}

nccl_tests() { # sources, which .cache/cuda's nvcc builds; without them that test is skipped
    [ -d .cache/nccl-tests/src ] ||
        git clone -q --depth 1 --branch v2.17.6 https://github.com/NVIDIA/nccl-tests .cache/nccl-tests ||
        echo "no sources of nccl-tests here: their build is not tested"
}

frameworks() { # an environment of its own for aicb trace: Megatron-core and DeepSpeed, about 1 GB
    [ -x .cache/trace/bin/python ] || scripts/make_venv.sh .cache/trace || return
    scripts/install.sh .cache/trace trace
}

images() { # what the cluster tests' hosts are made of; takes minutes on a bare machine
    "$bin/python" -m tests.cluster base-image && "$bin/python" -m tests.cluster wheelhouse &&
        "$bin/python" -m tests.cluster engine
}

images_made() { # waits for their making, prints what it wrote and how long it took
    wait "$being_made"
    cat "$making/log"
    [ "$(cat "$making/code" 2>/dev/null)" = 0 ]
}

tests() { # tests NAME MARKERS OPTIONS...: a file stays on one worker, what its tests share is made once
    local name=$1
    shift
    step "$name" tests_and_failed_again "$name" "$@"
}

tests_and_failed_again() { # tests_and_failed_again NAME MARKERS OPTIONS...
    local name=$1 markers=$2 failed_tests=.pytest_cache/v/cache/lastfailed count
    shift 2
    rm -f "$failed_tests"
    "$bin/python" -m pytest --dist loadfile --no-loadscope-reorder --durations 12 -m "$markers" "$@" && return
    [ $? = 1 ] && [ -s "$failed_tests" ] || return 1
    cp "$failed_tests" "$failed_tests.first"
    count=$(grep -c '": true' "$failed_tests.first")
    [ "$count" -le "$MOST_AGAIN" ] || return 1
    echo
    echo "== $name: the $count that failed, once more and alone"
    "$bin/python" -m pytest --last-failed --last-failed-no-failures none -m "$markers" "$@" -n 0 || return 1
    summary+=("$(sed -n 's/^ *"\(.*\)": true,\{0,1\}$/ALONE  \1/p' "$failed_tests.first")")
}

measured_tests() { # as tests; below fail_under of pyproject.toml it fails. `coverage report -m` shows the lines afterwards
    # sys.monitoring of Python 3.12 costs less than a trace function.
    "$bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' && export COVERAGE_CORE=sysmon
    # Tests of the repository's text run little of the product that others do not.
    tests "$@" -n 4 --no-torch --ignore=tests/docs --ignore=tests/scripts --cov --cov-report=
}

files_marked() { # files_marked MARKER: whose tests have it; to collect all others takes as long as some tests
    grep -rlE --include='test_*.py' "pytest\.mark\.$1\b" tests
}

lint() {
    step "ruff check" "$bin/ruff" check .
    step "ruff format" "$bin/ruff" format --check .
    step "mypy" "$bin/mypy"
    step "import contracts" "$bin/lint-imports"
}

meanwhile=()
folders_meanwhile=()

start_meanwhile() { # start_meanwhile FOLDER FUNCTION: sets its pid in FOLDER/pid
    set -m # a process group of its own, which a Ctrl-C here can be passed on to
    "$2" "$1" &
    set +m
    echo $! >"$1/pid"
    meanwhile+=($!)
    folders_meanwhile+=("$1")
    trap end_meanwhile EXIT
}

end_meanwhile() {
    local pid
    for pid in "${meanwhile[@]}"; do
        kill -INT -- "-$pid" 2>/dev/null
    done
    wait
    rm -rf "${folders_meanwhile[@]}"
}

images_into() { # images_into FOLDER: leaves log and code there; before others where it may be, since tests wait for it
    renice -n -10 -p "$BASHPID" >/dev/null 2>&1
    images >"$1/log" 2>&1
    local code=$?
    echo "made in $SECONDS s" >>"$1/log"
    echo $code >"$1/code.new"
    mv "$1/code.new" "$1/code"
}

make_images_meanwhile() { # sets being_made and making, or lacking where this machine cannot have hosts
    lacking=$("$bin/python" -m tests.cluster needs) || return
    making=$(mktemp -d)
    start_meanwhile "$making" images_into
    being_made=$!
}

lint_into() { # lint_into FOLDER: prints all at once when it has ended; leaves summary and failed there
    lint >"$1/log" 2>&1
    printf '%s\n' "${summary[@]}" >"$1/summary"
    echo $failed >"$1/failed"
    cat "$1/log"
}

lint_meanwhile() { # one core's work, while the workers of the tests begin
    linting=$(mktemp -d)
    start_meanwhile "$linting" lint_into
}

lint_ended() {
    wait "$(cat "$linting/pid")"
    mapfile -t -O ${#summary[@]} summary <"$linting/summary"
    [ "$(cat "$linting/failed" 2>/dev/null)" = 0 ] || failed=1
}

if [ "$what" = package ]; then
    mapfile -t folders < <(find tests -type d -path "*/${3%/}" -not -path "tests/data/*")
    if [ ${#folders[@]} = 0 ]; then
        echo "check.sh: PACKAGE=$3: no folder below tests/ has this name; there are: $(
            find tests -mindepth 2 -name "test_*.py" -printf "%h\n" | cut -d / -f 2- | sort -u | xargs
        )" >&2
        exit 2
    fi
    if grep -rqE --include='*.py' "\btestbed\b|\bdocker_engine\b" "${folders[@]}" && "$bin/python" -m tests.cluster needs; then
        step "images" images
    fi
    tests "tests" "not alone and not nightly" -n 4 "${folders[@]}"
    mapfile -t lonely < <(grep -rlE --include='test_*.py' "pytest\.mark\.alone\b" "${folders[@]}")
    [ ${#lonely[@]} = 0 ] || tests "tests, one by one" "alone and not nightly" -n 0 "${lonely[@]}"
    echo
    printf '%s\n' "${summary[@]}"
    exit $failed
fi
is_whole=
[ "$what" = test ] || [ "$what" = nightly ] && is_whole=yes
[ -z "$is_whole" ] || make_images_meanwhile
if [ -n "$is_whole" ] || [ "$what" = quick ]; then
    lint_meanwhile
else
    lint
fi
if [ "$what" = quick ]; then
    # Each worker collects all tests, in ten seconds: a fourth would cost more than it does while the others wait.
    tests "quick tests" "not cluster and not nightly and not alone" -n 3 --no-torch --short
    lint_ended
fi
if [ "$what" = coverage ] || [ "$what" = nightly ]; then
    measured_tests "coverage" "not cluster and not nightly and not alone"
fi
if [ "$what" = nightly ]; then
    export CLUSTERDYNO_NIGHTLY=1
fi
if [ -n "$is_whole" ]; then
    [ -n "${making:-}" ] || printf '\n== the cluster tests will be skipped: they need %s\n' "$lacking"
    # Four workers on two cores: tests of faults wait most of their time, those of workloads compute (tests/workers.py).
    # Budgets are for the samples of make test; nightly draws many more.
    budgets=--check-budgets
    [ "$what" = test ] || budgets=
    wait_for_images=${making:+--wait-for-images=$making}
    tests "tests" "not alone and not nightly" -n 4 ${budgets:+"$budgets"} ${wait_for_images:+"$wait_for_images"}
    lint_ended
    # Those of its tests that need hosts have waited for them.
    [ -z "${making:-}" ] || step "images" images_made
    mapfile -t lonely < <(files_marked alone)
    tests "tests, one by one" "alone and not nightly" -n 0 ${wait_for_images:+"$wait_for_images"} "${lonely[@]}"
fi
if [ "$what" = nightly ]; then
    step "paddle" paddle
    step "traced frameworks" frameworks
    step "torch for CUDA" cuda
    step "nccl-tests" nccl_tests
    tests "nightly tests" "nightly and not alone" -n 2 --timeout 3600
    tests "nightly, one by one" "nightly and alone" -n 0 --timeout 3600 "${lonely[@]}"
    step "mutants" "$bin/python" -m tests.mutants
fi

echo
printf '%s\n' "${summary[@]}"
exit $failed
