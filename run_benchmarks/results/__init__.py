"""Results of rounds and runs: verdicts, causes of failures, metrics, records."""
