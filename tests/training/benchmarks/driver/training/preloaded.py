"""Loads what a rank loads until its first update; the processes that are forked from this one share it."""

from importlib import import_module

from common.garbage import load_modules, modules_are_loaded

load_modules()
for module in ("torch._dynamo", "torch.distributed.tensor"):
    import_module(module)
modules_are_loaded()
