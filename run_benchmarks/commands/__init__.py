"""Commands of run.py: what the words of the command line do."""
