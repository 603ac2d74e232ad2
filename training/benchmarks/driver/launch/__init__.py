"""What runs beside torchrun on a host: the launcher, its supervisor, the watch over the ranks."""
