"""Measures a training: times, curves, rates, its report."""
