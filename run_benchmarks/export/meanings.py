"""Names the formats that a run can be exported in, with what each is for; imports none of their writers."""

MEANINGS = {
    "csv": "a table, for spreadsheets",
    "jsonl": "a table, an object a line",
    "parquet": "a table, by pyarrow",
    "junit": "cases and rounds as tests, for CI",
    "markdown": "a summary, for an issue or a wiki",
    "openmetrics": "gauges, for node_exporter's textfile collector",
    "mlperf": "MLLOG lines of the first round of a training that passed",
    "nccl-tests": "sweeps by all ranks of the network benchmark",
}
