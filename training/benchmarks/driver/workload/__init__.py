"""Functions that a rank calls: open its run and its process group."""
