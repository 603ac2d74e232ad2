"""Vendor `ascend`: Huawei's Ascend accelerators."""
