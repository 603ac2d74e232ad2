"""The controller, which runs on the head node."""

__version__ = "0.2.0.dev0"
