"""One operation and rows of them: types, ranks, blocks, folding."""
