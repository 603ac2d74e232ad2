"""Makes text of a host harmless for a terminal: no escape sequences, no overwriting, no reversed reading."""

import re

# C0 without tab and line end, DEL and C1 (an 8-bit CSI or OSC is one); characters that reverse the reading direction;
# further line ends; surrogates, which cannot be encoded; the invisible BOM, interlinear marks and tags.
HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """The text with characters that control a terminal replaced by their escapes in Python; tabs and line ends stay."""
    if text.isascii() and text.isprintable():
        return text
    return HARMFUL.sub(lambda match: repr(match[0])[1:-1], text.replace("\r\n", "\n"))
