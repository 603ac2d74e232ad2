"""The image on top of NGC's PyTorch, with flash-attn built from source, and the network benchmark in it."""

VENDOR = "nvidia"
RUNTIME = "docker"
IMAGE_OPTIONS = {"flash_attn": "2.8.3.post2"}
CASES = {"network:pytorch:H200:1:1:1": ""}
