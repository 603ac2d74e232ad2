"""The collectives on eight H200."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = {"network:pytorch:H200:1:8:3": ""}
