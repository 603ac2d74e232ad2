"""What a person sees while run.py works: the console, progress, commands to paste."""
