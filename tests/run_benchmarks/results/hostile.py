"""What a hostile or broken host leaves: JSON values and whole files at which readers, writers and tables break."""

import json
from collections.abc import Mapping

from protocol.perflog import PREFIX, Event
from tests.run_benchmarks.results.rounds import START_MS, STEP, perflog

DEEP = 100_000
# As JSON text: what stands for a value in a record.
VALUES: dict[str, str] = {
    "deep list": "[" * DEEP + "]" * DEEP,
    "deep object": '{"a":' * DEEP + "1" + "}" * DEEP,
    "as deep as allowed": "[" * 60 + "]" * 60,
    "surrogate": '"\\ud800"',
    "surrogate key": '{"\\udfff": 1}',
    "5000 digits": "9" * 5000,
    "10 to the 400": "1" + "0" * 400,
    "over 64 bits": str(2**63),
    "64 bits": str(2**63 - 1),
    "NaN": "NaN",
    "infinity": "-Infinity",
    "beyond a float": "1e999",
    "largest float": "1.7976931348623157e308",
    "smallest float": "5e-324",
    "same key twice": '{"a": 1, "a": 2}',
    "null": "null",
    "list": "[[], {}, 0]",
    "controls": json.dumps("\x1b]52;c;aGk=\x07\x1b[2J\x00\u202e"),
    "markup": json.dumps("</table><script>alert(1)</script>{{ 7 * 7 }}"),
    "long": json.dumps("x" * 100_000),
    "negative": "-1",
    "bool": "true",
}
# Whole files: bytes that are none of ours.
FILES: dict[str, bytes] = {
    "nothing": b"",
    "zeros": b"\0" * 10_000,
    "no UTF-8": bytes(range(256)) * 40,
    "deep": b"[" * DEEP,
    "a list": b"[]",
    "a number": b"9" * 5000,
    "one long line": b"{" + b" " * (5 << 20),
    "null": b"null\n" * 1000,
    "objects": b"{}\n" * 1000,
}
MEASURED = ("size_bytes", "time_us", "algbw_GBps", "busbw_GBps", "correct", "groups", "pattern", "repeat", "hosts")


def log_with(event: Event, value: str) -> bytes:
    """Rank 0's log whose records of that event have this JSON text for a value."""
    lines = []
    for line in perflog(0, {"correct": "pass", "busbw_GBps": 1.5}).splitlines():
        if f'"event": "{event}"' in line:
            metadata = json.loads(line.removeprefix(PREFIX))["metadata"]
            line = f'{PREFIX}{{"event": "{event}", "value": {value}, "metadata": {json.dumps(metadata)}}}'
        lines.append(line)
    return "\n".join(lines).encode() + b"\n"


def with_key(known: Mapping[str, object], key: str, value: str) -> str:
    """JSON text of an object whose `key` has this JSON text."""
    others = {name: item for name, item in known.items() if name != key}
    return f"{json.dumps(others)[:-1]}{', ' if others else ''}{json.dumps(key)}: {value}}}"


def logs() -> dict[str, bytes]:
    """Logs of rank 0 by what is wrong with them."""
    found = {}
    for name, value in VALUES.items():
        found[f"{name} as FINISHED"] = log_with(Event.FINISHED, value)
        found[f"{name} as a metric"] = log_with(Event.FINISHED, with_key({"correct": "pass"}, "busbw_GBps", value))
        found[f"{name} as STEP_END"] = log_with(Event.STEP_END, value)
        for key in MEASURED:
            found[f"{name} as {key}"] = log_with(Event.STEP_END, with_key(GROUPED, key, value))
        found[f"{name} as a line"] = PREFIX.encode() + value.encode() + b"\n"
    return found


GROUP: dict[str, object] = {
    **STEP,
    "group": "a-b",
    "hosts": ["a", "b"],
    "node_ranks": [0, 1],
    "world_size": 4,
    "time_us": {"p50": 10.5, "p95": 12.0, "min": 9.0},
}
GROUPED: dict[str, object] = {
    **GROUP,
    "collective": "all_reduce",
    "pattern": "pairs",
    "round": "1",
    "repeat": 1,
    "groups": [GROUP],
    "convention": "none",
    "count": 1,
    "dtype": "float32",
    "in_place": True,
    "wrong_elements": 0,
}


def node_exits() -> dict[str, bytes]:
    """node_exit.json by what is wrong with it."""
    failure: dict[str, object] = {"rank": 0, "local_rank": 0, "pid": 1, "exit_code": 7, "signal": None}
    failure |= {"time_ms": START_MS, "message": "boom", "stopped": False}
    known: dict[str, object] = {"exit_code": 7, "argv": ["launch"], "interface": "eth0", "started_ms": START_MS}
    known |= {"finished_ms": START_MS, "torch": "2", "failures": [failure]}
    found = dict(FILES)
    for name, value in VALUES.items():
        for key in ("interface", "finished_ms", "exit_code", "environment", "error"):
            found[f"{name} as {key}"] = with_key(known, key, value).encode()
        for key in ("message", "time_ms", "exit_code", "signal", "rank"):
            found[f"{name} as {key} of a failure"] = with_key(
                known, "failures", f"[{with_key(failure, key, value)}]"
            ).encode()
    return found


def rank_states() -> dict[str, bytes]:
    """rank_states.json by what is wrong with it."""
    state: dict[str, object] = {
        "rank": 0,
        "pid": 1,
        "told_ms": START_MS,
        "moved_ms": START_MS,
        "left_us": START_MS * 1000,
    }
    found = dict(FILES)
    for name, value in VALUES.items():
        found[f"{name} as written_ms"] = with_key({"ranks": [state]}, "written_ms", value).encode()
        for key in ("rank", "told_ms", "moved_ms", "steps", "collectives", "left_us", "last_event", "waits_in"):
            states = f"[{with_key({**state, 'left_code': 0, 'exit_code': 0}, key, value)}]"
            found[f"{name} as {key}"] = with_key({"written_ms": START_MS}, "ranks", states).encode()
    return found


def monitors() -> dict[str, bytes]:
    """monitor.jsonl by what is wrong with it."""
    device = {"index": 0, "utilization_percent": 1, "memory_used_bytes": 1, "temperature_c": 1, "power_w": 1}
    device |= {"sm_clock_mhz": 1, "memory_total_bytes": 1, "ecc_corrected": 0, "ecc_uncorrected": 0}
    samples: list[tuple[str, dict[str, object]]] = [
        ("cpu", {"utilization_percent": 1}),
        ("mem", {"used_percent": 1, "used_bytes": 1, "total_bytes": 1}),
        ("power", {"meter": "rapl", "watts": 1, "joules": 1, "method": "counter"}),
        ("accelerator", {"devices": [{**device, "throttle_reasons": ["heat"]}]}),
    ]
    found = dict(FILES)
    for name, value in VALUES.items():
        for source, values in samples:
            for key in values:
                record = with_key({"schema": 1, "t_ms": 1, "source": source}, "values", with_key(values, key, value))
                found[f"{name} as {key} of {source}"] = f"{record}\n{record}\n".encode()
        for key in ("schema", "t_ms", "source", "unavailable", "error", "start", "summary", "meter"):
            known: dict[str, object] = {"schema": 1, "t_ms": 1, "source": "power"}
            found[f"{name} as {key}"] = with_key(known, key, value).encode() + b"\n"
    many = [{"schema": 1, "t_ms": 1, "source": f"s{index}", "error": f"e{index}"} for index in range(5000)]
    found["5000 sources"] = "\n".join(map(json.dumps, many)).encode()
    return found
