"""Vendor `cambricon`: Cambricon's MLUs."""
