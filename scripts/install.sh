#!/usr/bin/env bash
# install.sh VENV run|dev|docs|paddle|trace|cuda: installs into a virtual environment what the locks list, checked by hashes.
# PIP_ARGS goes to pip. TORCH_ARGS installs torch as these arguments of pip say, not locked; all else is locked still.
# Where no NVIDIA driver runs, torch is PyTorch's CPU build (0.2 GB), else PyPI's with CUDA's libraries (4.8 GB).
set -euo pipefail
cpu_index=https://download.pytorch.org/whl/cpu
gpus='/dev/nvidia[0-9]*'
cd "$(dirname "$0")/.."
# pip catches a Ctrl-C and ends as if a package were missing.
trap 'exit 130' INT
trap 'exit 143' TERM
python=$1/bin/python
case $2 in
run) locks=(-r requirements/controller.lock -r requirements/workload.lock) ;;
dev) locks=(-r requirements/dev.lock -r requirements/chakra.lock -r requirements/oracles.lock) ;;
docs) locks=(-r requirements/docs.lock) ;;
paddle) locks=(-r requirements/paddle.lock) ;;
trace) locks=(-r requirements/trace.lock) ;;
cuda) locks=(-r requirements/workload.lock -r requirements/torch.lock -r requirements/torch-cuda.lock -r requirements/nvidia.lock) ;;
*)
    echo "install.sh VENV run|dev|docs|paddle|trace|cuda" >&2
    exit 2
    ;;
esac
eval "pip_args=(${PIP_ARGS:-})"
eval "torch_args=(${TORCH_ARGS:-})"
# pip compiles on one core.
install=("$python" -m pip install --disable-pip-version-check --no-compile "${pip_args[@]}")
locked=("${install[@]}" --require-hashes --no-deps)

# What is seldom loaded is compiled when it is, if at all. Ranks write no bytecode: what they load is compiled here.
late='/site-packages/([^/]+/)*(tests?|testing/_internal|onnx|transformers|pandas|scipy|numba|jieba|torchao|mypy|mypyc|pip|setuptools)/'

compile_all() { # on all cores; packages hold some files for other versions of Python
    "$python" -m compileall -qq -j 0 -x "$late" "$1" || true
}

"${locked[@]}" "${locks[@]}"
case $2 in
docs | paddle | cuda) # which need no other torch
    compile_all "$1/lib"
    exit 0
    ;;
esac
if [ ${#torch_args[@]} -gt 0 ]; then
    echo "torch is not locked: pip install ${torch_args[*]}" >&2
    "${install[@]}" "${torch_args[@]}"
else
    cpu=(-r requirements/torch-cpu.lock) # also with a GPU, where an index given with PIP_ARGS has it
    compgen -G "$gpus" >/dev/null || cpu+=(--extra-index-url "$cpu_index" --retries 1)
    if ! "${locked[@]}" "${cpu[@]}"; then
        echo "install.sh: none of the indexes has the CPU build of torch (see above): taking PyPI's, 4.8 GB" >&2
        "${locked[@]}" -r requirements/torch.lock -r requirements/torch-cuda.lock
    fi
fi
compile_all "$1/lib"
# mlc-chakra is there for its schema alone, apache-otava for its change points, without what their other tools need.
fits="No broken requirements found."
found=$("$python" -m pip check || true)
found=$(grep -v '^mlc-chakra \|^apache-otava ' <<<"$found" || echo "$fits")
echo "$found"
[ "$found" = "$fits" ] || echo "$1: packages do not fit together, see above" >&2
