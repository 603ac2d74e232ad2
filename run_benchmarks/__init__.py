"""The controller: what runs on the head node."""

__version__ = "0.2.0.dev0"
