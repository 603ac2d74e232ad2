"""Layers, attention, precision, optimizers and what splits a model."""
