"""Draws the charts of every page of the project with one library, from one description of each kind of chart."""
