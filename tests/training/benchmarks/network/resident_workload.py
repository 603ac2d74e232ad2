"""The network benchmark, whose ranks note their resident memory once a second in a file of the folder argv[1]."""

import json
import os
import sys
import threading
import time
from pathlib import Path

import psutil

from training.benchmarks.network.pytorch.suite import main

PERIOD_S = 1.0


def _sample(samples: list[int], over: threading.Event) -> None:
    process = psutil.Process()
    while not over.wait(PERIOD_S):
        samples.append(process.memory_info().rss)


if __name__ == "__main__":
    target = Path(sys.argv.pop(1)) / f"resident{os.environ['RANK']}.json"
    samples: list[int] = []
    over = threading.Event()
    thread = threading.Thread(target=_sample, args=(samples, over), daemon=True)
    begin = time.monotonic()
    thread.start()
    try:
        main()
    finally:
        over.set()
        thread.join()
        target.write_text(json.dumps({"seconds": time.monotonic() - begin, "bytes": samples}))
