"""NVIDIA's apex, as far as the trainer calls it."""
