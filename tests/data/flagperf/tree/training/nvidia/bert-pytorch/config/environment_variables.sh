# Variables of the site, and of FlagPerf's build.
export CONTAINER_MOUNTS="--gpus all"
NVCC_ARGUMENTS="--expt-relaxed-constexpr"
if [[ "$PYTORCH_BUILD_VERSION" == 1.8* ]]; then
    NVCC_ARGUMENTS="${NVCC_ARGUMENTS} -D_PYTORCH18"
fi
export NVCC_ARGUMENTS
