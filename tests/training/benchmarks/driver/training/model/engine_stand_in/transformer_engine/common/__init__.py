"""What frameworks share."""
