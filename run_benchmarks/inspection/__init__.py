"""What is known of a host before it works: facts, checks, capacity, its code folder."""
