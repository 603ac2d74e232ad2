"""What a rank calls: its run, its process group."""
