"""The log of the operations that were executed."""
