"""One reader and one writer a file format."""
