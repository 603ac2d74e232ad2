"""Translation of FlagPerf's configuration trees into this project's files."""
