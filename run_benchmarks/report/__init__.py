"""Reports of a run as files."""
