"""Everything that all verbs of the simulation share."""
