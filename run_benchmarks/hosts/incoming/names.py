"""Checks the names that members of a host's archive may have on the head node."""

from common.shortening import shortened
from run_benchmarks.hosts.incoming.limits import MAX_DEPTH, MAX_NAME_BYTES, MAX_PART_BYTES, PATH_MAX


class UnfitNameError(ValueError):
    """A name that no file on the head node may have; the text says why."""


def parts_of(name: str) -> tuple[str, ...]:
    """The folders of a member's name and its last part; empty for the archive's own folder.

    Raises:
        UnfitNameError: the name leaves the folder, is impossible for a file, or is too long or too deep.
    """
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise UnfitNameError("its name is not UTF-8") from error
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/"):
        raise UnfitNameError("its name is absolute")
    if ".." in parts:
        raise UnfitNameError("its name leaves the folder")
    if "\0" in name:
        raise UnfitNameError("its name holds a zero byte")
    if size > MAX_NAME_BYTES or any(len(part.encode("utf-8")) > MAX_PART_BYTES for part in parts):
        raise UnfitNameError(f"its name is longer than {MAX_NAME_BYTES} bytes, or {MAX_PART_BYTES} in one part")
    if len(parts) > MAX_DEPTH:
        raise UnfitNameError(f"it lies deeper than {MAX_DEPTH} folders")
    return parts


def named(name: str) -> str:
    """The name by which a member that is not taken is remembered, at most as long as a path that a host can open."""
    return name.removeprefix("./")[:PATH_MAX]


def as_listed(name: str) -> str:
    """The name of a member as it appears in its host's list, which was read as UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def shown(name: str) -> str:
    """The name for a message: it can be encoded, and is not too long."""
    text = as_listed(name)
    return shortened(text, MAX_PART_BYTES)
