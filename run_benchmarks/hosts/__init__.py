"""Access to hosts: the head node itself, and others over SSH."""
