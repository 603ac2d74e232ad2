"""The plan of a run: pure data, made from settings before any host is touched."""
