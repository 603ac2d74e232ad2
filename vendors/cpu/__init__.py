"""Vendor `cpu`: hosts without accelerators."""
