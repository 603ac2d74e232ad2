"""Vendor `abacus`: a device for tests, which counts with the host's processors."""
