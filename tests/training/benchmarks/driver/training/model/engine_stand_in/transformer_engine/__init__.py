"""NVIDIA's Transformer Engine, as far as the trainer calls it, on any device.

Signatures: those of requirements/trace.lock, whose Python a test reads; formulas: its documentation, "PyTorch".
"""

__version__ = "2.20.2"
