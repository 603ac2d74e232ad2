"""Runs the benchmark with a rank that sends one wrong element in every call that is checked."""

from tests.training.benchmarks.aicb.pytorch.executing_workload import OtherData
from training.benchmarks.aicb.pytorch import suite

if __name__ == "__main__":
    setattr(suite, "DataCheck", OtherData)  # noqa: B010 # the type is another
    suite.main()
