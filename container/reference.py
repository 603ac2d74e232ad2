"""Checks that a text is the name of an image as `docker pull` takes it."""

import re

# [host[:port]/]name[/name...][:tag][@digest]. Source: the grammar of distribution/reference, regexp.go.
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])"
_NAME = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = "(?:sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})"
PATTERN = rf"(?:{_HOST}(?::[0-9]+)?/)?{_NAME}(?:/{_NAME})*(?::{_TAG})?(?:@{_DIGEST})?"


def is_reference(text: str) -> bool:
    """Whether it is a reference of an image: name, perhaps with a registry before it, a tag and a digest after it."""
    return re.fullmatch(PATTERN, text) is not None
