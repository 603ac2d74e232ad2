// As nccl-tests do: a kernel fills the buffer of each GPU, NCCL sums them. Needs a driver to run, none to be built.
#include <cstdio>
#include <cuda_bf16.h>
#include <nccl.h>

__global__ void fill(__nv_bfloat16 *buffer, int count) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) buffer[index] = __float2bfloat16(1.0f);
}

int main() {
    int version = 0, runtime = 0, gpus = 0;
    ncclGetVersion(&version);
    cudaRuntimeGetVersion(&runtime);
    std::printf("nccl %d cuda %d\n", version, runtime);
    cudaError_t error = cudaGetDeviceCount(&gpus);
    if (error != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorString(error));
        return 3;
    }
    ncclComm_t comm;
    cudaStream_t stream;
    __nv_bfloat16 *buffer;
    cudaStreamCreate(&stream);
    cudaMalloc(&buffer, 1024 * sizeof *buffer);
    fill<<<4, 256, 0, stream>>>(buffer, 1024);
    ncclCommInitAll(&comm, 1, nullptr);
    ncclResult_t result = ncclAllReduce(buffer, buffer, 1024, ncclBfloat16, ncclSum, comm, stream);
    return result == ncclSuccess && cudaStreamSynchronize(stream) == cudaSuccess ? 0 : 4;
}
