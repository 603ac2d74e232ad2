"""The collectives on one H200: what NCCL costs without a peer."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = {"network:pytorch:H200:1:1:1": ""}
