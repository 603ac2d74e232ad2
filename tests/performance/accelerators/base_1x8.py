"""Every device test on eight H200 at once."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = {"base:pytorch:H200:1:8:3": ""}
