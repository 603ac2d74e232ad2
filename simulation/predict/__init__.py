"""Predicts the time and memory of a training iteration from measured kernels: which layout, how fast, does it fit."""
