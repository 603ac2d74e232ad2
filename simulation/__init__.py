"""Simulation of AI clusters on a laptop: topologies, collectives as flows, and the analytical model."""
