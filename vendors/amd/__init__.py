"""Vendor `amd`: hosts with AMD Instinct accelerators."""
