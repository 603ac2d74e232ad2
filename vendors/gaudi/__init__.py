"""Vendor `gaudi`: Intel's Gaudi accelerators."""
