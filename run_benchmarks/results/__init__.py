"""Results of rounds and runs: verdicts, causes of failures, metrics, records; `load_run` reads a result folder."""

from run_benchmarks.results.loading import LoadedRun as LoadedRun
from run_benchmarks.results.loading import load_run as load_run
from run_benchmarks.results.tables import frame as frame
