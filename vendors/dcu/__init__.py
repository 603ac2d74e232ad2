"""Vendor `dcu`: Hygon's DCUs."""
