"""The description of one job: its parameters, rules, presets and groups of ranks."""
