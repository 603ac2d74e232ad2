"""Topologies: makes, reads, edits, draws and converts descriptions of a cluster's network."""
