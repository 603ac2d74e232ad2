"""The operations that are measured."""
