"""Tables, views and answers for the reader."""
