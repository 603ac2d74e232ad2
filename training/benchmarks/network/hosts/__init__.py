"""The network of one host: its links and NICs, and nccl-tests on it."""
