"""What the head node and the ranks agree on: PerfLog, case configs, the catalogue, records, masking. Needs no torch."""
