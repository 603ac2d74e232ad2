"""PerfLog, the log by which a rank tells what happens; needs pydantic only.

record: what a line holds. writer: of a rank. reader: of the head node. rules: what a rank's log must keep.
"""

from protocol.perflog.reader import FoundLine, LineFinder, find_lines, parse_line
from protocol.perflog.record import PREFIX, Event, Metadata, PerfLogError, PerfLogRecord, SubmitInfo
from protocol.perflog.rules import MAX_TOLD, SequenceCheck, check_sequence
from protocol.perflog.writer import PerfLogger, format_record, write_line

__all__ = [
    "MAX_TOLD", "PREFIX", "Event", "FoundLine", "LineFinder", "Metadata", "PerfLogError", "PerfLogRecord", "PerfLogger",
    "SequenceCheck", "SubmitInfo", "check_sequence", "find_lines", "format_record", "parse_line", "write_line",
]  # fmt: skip
