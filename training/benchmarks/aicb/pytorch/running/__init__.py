"""The execution of calls: operations, their times, and what is checked of them."""
