"""What a host sends passes here first: archives, output of commands, text for a console. Nothing of it is believed."""
