"""Writes the page of an executed workload or of a workload: the verb `visualize`."""

import argparse

from common.summary import Summary
from common.whole_files import write_whole
from workloads.analysis import page, timeline


def run(arguments: argparse.Namespace) -> Summary:
    """Write the page.

    Raises:
        AicbError: the input cannot be read.
        OSError: the page cannot be written.
    """
    shown = timeline.load(arguments.file)
    data = page.html(shown).encode("utf-8", errors="replace")
    write_whole(arguments.output, [data])
    said = f"wrote {arguments.output}: {len(shown)} operations, {len(data)} bytes"
    return Summary(said, {"file": str(arguments.output), "operations": len(shown), "bytes": len(data)})
