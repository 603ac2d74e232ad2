"""Times rounds: rotates, sweeps and soaks them."""
