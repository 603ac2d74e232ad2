"""`generate` and `simai` with the dialect aicb, for the tests of what AICB itself writes."""

from functools import partial

from workloads.dialects import generation

generate = partial(generation.generate, dialect="aicb")
simai = partial(generation.simai, dialect="aicb")
