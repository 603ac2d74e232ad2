"""`generate` and `simai` with the dialect aicb, for the tests of what AICB itself writes."""

from functools import partial

from workloads import api

generate = partial(api.generate, dialect="aicb")
simai = partial(api.simai, dialect="aicb")
