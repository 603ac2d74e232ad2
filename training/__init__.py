"""Code that runs on the hosts under test."""
