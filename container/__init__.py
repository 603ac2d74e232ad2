"""Container images: their contents, their build, their distribution."""
