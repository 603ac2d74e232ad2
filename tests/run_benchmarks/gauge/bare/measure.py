"""A rank of the gauge without an outcome.py."""

from ..plain.measure import main

if __name__ == "__main__":
    main("bare")
