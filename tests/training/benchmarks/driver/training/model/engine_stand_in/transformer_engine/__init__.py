"""NVIDIA's Transformer Engine, as far as the trainer calls it, on any device.

Signatures: docs.nvidia.com/deeplearning/transformer-engine, release 2.6, "PyTorch" and "Common API".
"""

__version__ = "2.6.0"
