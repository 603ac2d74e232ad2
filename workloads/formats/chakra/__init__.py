"""Converts workloads to execution traces of MLCommons Chakra and back; needs the extra of requirements/chakra.txt."""
