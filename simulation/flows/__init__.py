"""Collectives as flows between ranks, in the manner of SimCCL."""
