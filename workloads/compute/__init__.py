"""A database of measured compute times: what a kernel took on a device, and an estimate where nobody has measured."""
