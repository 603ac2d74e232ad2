"""Lays a training out over ranks, and estimates the memory that it takes."""
