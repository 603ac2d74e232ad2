"""Names the differences between two sets of recorded values."""

import json
from collections.abc import Mapping


def different(recorded: Mapping[str, object], found: Mapping[str, object]) -> str:
    """The names whose values differ, with both values; empty if none does. Values are compared as JSON."""
    names = [name for name in {**recorded, **found} if _text(recorded, name) != _text(found, name)]
    return "; ".join(f"{name} is {_text(recorded, name)[:80]}, there {_text(found, name)[:80]}" for name in names[:3])


def _text(values: Mapping[str, object], name: str) -> str:
    return json.dumps(values[name], sort_keys=True) if name in values else "none"
