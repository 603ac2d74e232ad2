"""Two layers of Mixtral 8x7B on one H200, 100 steps: grouped products of experts."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = {"mixtral:pytorch:H200:1:1:1": None}
