"""Data that head node and ranks exchange: PerfLog, case configs, catalogue, records, masking. Needs no torch."""
