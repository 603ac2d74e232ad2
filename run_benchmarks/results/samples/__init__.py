"""Reads what a monitor sampled on a host during a round: monitor.jsonl."""
