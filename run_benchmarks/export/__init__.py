"""Writes a run in the formats of other tools, and a case as an archive for a vendor."""
