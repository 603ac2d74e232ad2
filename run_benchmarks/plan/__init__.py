"""The plan of a run: pure data, made of settings before any host is touched."""
