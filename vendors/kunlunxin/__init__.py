"""Vendor `kunlunxin`: Kunlunxin's XPUs."""
