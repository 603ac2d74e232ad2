"""One run from its first host to its last case: schedule, retries, preparation, images."""
