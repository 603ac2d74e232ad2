"""Vendor `tsingmicro`: Tsingmicro's accelerators."""
