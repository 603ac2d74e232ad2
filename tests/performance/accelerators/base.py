"""Every device test on one H200; for A100 and H100 the config of that name."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = {"base:pytorch:H200:1:1:1": ""}
