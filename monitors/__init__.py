"""The monitor: samples a host while a round runs."""
