"""Vendor `metax`: MetaX's GPUs."""
