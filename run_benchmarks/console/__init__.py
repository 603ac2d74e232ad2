"""Output of run.py for people: console, live progress, commands to paste."""
