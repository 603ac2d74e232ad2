"""Compares the code's folder on a host with the packed code, and replaces it if it differs.

`<base>/code/<digest>` is a link to the folder beside it that holds the code. A folder that differs is replaced by
changing the link, which is one rename: at no moment is a file of the code missing, and a round of another run that has
the old folder mounted keeps it. Replaced folders are removed a week later.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence

from common.shortening import few
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.transfer import push
from run_benchmarks.plan.code_bundle import HASH_LENGTH, CodeBundle

NAMED, LISTED = 5, 2000
CHECK_SECONDS = 60.0
# Shell function: the listing of a folder in the form of CodeBundle.manifest. Entries that are neither file nor folder,
# or too large to be code, are listed without a hash, so that they never match.
LISTING = rf"""
code_listing() {{
  (cd "$1" && LC_ALL=C && export LC_ALL &&
    find . -type f ! -size +65536k -exec sha256sum -b {{}} + -o -type d -empty -exec printf 'folder *%s\n' {{}} + \
      -o ! -type d -exec printf 'other *%s\n' {{}} + | sort)
}}
code_digest() {{ printf '%s\n' "$1" | sha256sum | cut -c 1-{HASH_LENGTH}; }}
"""
# Arguments: the code's path, its digest. Writes nothing if all files match, else a listing.
COMPARE = (
    LISTING
    + rf"""
found=$(code_listing "$1" 2>/dev/null)
if [ "$(code_digest "$found")" != "$2" ]; then printf '%s\n' "$found" | head -n {LISTED}; fi
"""
)
# Arguments: the code's path, its digest, the new folder beside it. Matching code is left unchanged.
SWITCH = (
    LISTING
    + r"""
set -eu
trap 'rm -rf "$3" "$3.link"' EXIT
is_right() { [ -d "$1" ] && found=$(code_listing "$1") && [ "$(code_digest "$found")" = "$2" ]; }
is_right "$3" "$2" || { echo "the data in $3 differs from what was sent" >&2; exit 1; }
if is_right "$1" "$2"; then exit; fi
if [ -L "$1" ]; then touch "$1/" 2>/dev/null || :; elif [ -e "$1" ]; then touch "$1"; mv -T "$1" "$3.replaced"; fi
ln -s "${3##*/}" "$3.link"
mv -fT "$3.link" "$1"
trap - EXIT
# Errors do not matter: another of these scripts may remove the same folder, and an old folder does no harm.
find "${1%/*}" -maxdepth 1 -name "${1##*/}.*" -mtime +7 ! -name "${3##*/}" -exec rm -rf {} + 2>/dev/null || :
"""
)


def compare(host: Host, code: CodeBundle, path: str) -> list[str]:
    """The differences of the code's folder on a host, in words; empty if there are none.

    Raises:
        HostError: the host does not answer, or the comparison fails.
    """
    argv = ["sh", "-c", COMPARE, "sh", path, code.digest]
    return differences(code, host.run(argv, deadline=CHECK_SECONDS).stdout.splitlines())


def bring(host: Host, code: CodeBundle, path: str, *, deadline: float, cancel: threading.Event | None = None) -> None:
    """Copy the code to a host where it is missing or differs, within `deadline` seconds; matching code is not touched.

    Setting `cancel` ends the copy at once.

    Raises:
        HostError: the host does not answer, or the code cannot be written.
    """
    fresh = f"{path}.{secrets.token_hex(4)}"
    push(host, code.open(), fresh, deadline=deadline, cancel=cancel)
    host.run(["sh", "-c", SWITCH, "sh", path, code.digest, fresh], deadline=deadline)


def differences(code: CodeBundle, listing: Sequence[str]) -> list[str]:
    """Files of a listing that were changed, are missing or are unexpected; empty for an empty listing."""
    if not listing:
        return []
    expected, found = _by_name(code.manifest.splitlines()), _by_name(listing)
    changed = [f"changed: {name}" for name in expected if name in found and found[name] != expected[name]]
    added = [f"added: {name}" for name in found if name not in expected]
    complete = len(listing) < LISTED
    missing = [f"missing: {name}" for name in expected if name not in found] if complete else []
    return [*changed, *added, *missing] or ["the differences cannot be determined"]


def in_words(host: str, found: Sequence[str]) -> str:
    """A warning that names the first differences."""
    return f"{host}: its code differed from that of this run and was replaced: {few(found, NAMED)}"


def _by_name(lines: Sequence[str]) -> dict[str, str]:
    pairs = (line.partition(" *") for line in lines if line)
    return {_printable(name.removeprefix("./")): digest for digest, _, name in pairs}


def _printable(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name)
