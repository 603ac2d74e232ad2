"""Proof that all ranks train one model."""
