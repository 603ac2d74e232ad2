"""AIOB: measures the sub-modules of a layer at the shapes of one rank. Only `worker` and what it imports need torch."""
