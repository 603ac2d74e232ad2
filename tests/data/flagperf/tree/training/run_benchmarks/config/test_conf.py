"""Test configs"""

VENDOR = "nvidia"
ACCE_CONTAINER_OPT = " --gpus all --net=host"
ACCE_VISIBLE_DEVICE_ENV_NAME = "CUDA_VISIBLE_DEVICES"
PIP_SOURCE = "https://pip.example.org/simple"
FLAGPERF_PATH = "/home/bench/FlagPerf/training"
FLAGPERF_LOG_PATH = FLAGPERF_PATH + "/result/"
FLAGPERF_LOG_LEVEL = "debug"
SHM_SIZE = "32G"
CLEAR_CACHES = True
CASES = {
    "bert:pytorch_1.8:A100:1:8:1": "/raid/datasets/bert/train/",
    "glm:pytorch_1.8:A100:1:8:2": "/raid/datasets/glm/train/",
    "cpm:pytorch_1.8:A100:2:8:1": "/raid/datasets/cpm/train/",
    "llama2_7b:deepspeed:A100:1:8:1": "/raid/datasets/llama2/",
    "resnet50:pytorch_1.8:A100:1:8:1": "/raid/datasets/imagenet/",
    "bert:paddle:A100:1:8:1": "/raid/datasets/bert/train/",
}
