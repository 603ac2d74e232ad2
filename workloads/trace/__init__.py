"""Traces what a real framework sends: one rank of any job, run on a laptop with fake tensors and a fake process group.

Only the modules that a traced process runs (worker, recorder, shims and the frameworks) import torch; the command, the
job, the routing and the recorded traces do without it.
"""
