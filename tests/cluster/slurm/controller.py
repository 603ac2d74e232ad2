"""Runs the real run.py against a Slurm cluster of the tests, as a person on its login node would."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

from run_benchmarks.plan.plan import round_folder
from tests.cluster.controller import STEP_BEGIN, Controller
from tests.cluster.faulty_project import LIGHT
from tests.cluster.slurm.cluster import SlurmCluster

ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED")  # COMPLETING is over
CASE: dict[str, object] = {**LIGHT, "nnodes": 2, "nproc": 1}


class SlurmController(Controller):
    """run.py whose hosts are Slurm's. `allocation`: the job inside of which it runs, if it does."""

    def __init__(self, folder: Path, cluster: SlurmCluster, root: Path, allocation: str = "") -> None:
        self.cluster, self.allocation = cluster, allocation
        super().__init__(folder, cluster.bed, root)
        self.configure_test({"one": CASE})

    def configure_cluster(self, **changes: object) -> None:
        """Write cluster_conf.py: all nodes of the cluster."""
        values: dict[str, object] = {"LAUNCHER": "slurm", "HOSTS": len(self._bed.hosts), **changes}
        self.cluster_conf.write_text("".join(f"{key} = {value!r}\n" for key, value in values.items()))

    def configure_test(self, cases: dict[str, dict[str, object]], **changes: object) -> None:
        """Write test_conf.py: these cases, under the Python that runs here."""
        values: dict[str, object] = {
            "VENDOR": "cpu",
            "RUNTIME": "slurm",
            "PYTHON": sys.executable,
            "FLAGPERF_LOG_PATH_HOST": str(self.logs),
            **changes,
            "CASES": list(cases),
            **cases,
        }
        self.test_conf.write_text("".join(f"{key} = {value!r}\n" for key, value in values.items()))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start run.py; the caller waits for it."""
        inside = {"SLURM_JOB_ID": self.allocation} if self.allocation else {}
        process = subprocess.Popen(
            self.argv(*words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self._folder,
            env={**os.environ, **self.cluster.environment, **inside},
        )
        self._started.append(process)
        return process

    def containers(self) -> list[str]:
        """None: the nodes have no engine."""
        return []

    def jobs(self) -> list[str]:
        """The ids of all jobs that have not ended; of one that is COMPLETING nothing can be started any more."""
        return self.cluster.call(["squeue", "--noheader", f"--states={','.join(ALIVE)}", "--format=%i"]).split()

    def processes(self) -> list[psutil.Process]:
        """What runs of its runs on the nodes, and the sruns of it: tasks, their supervisors, all that they started."""
        folder = str(self.logs)
        return [
            each
            for each in psutil.process_iter(["cmdline", "status"])
            if folder in " ".join(each.info["cmdline"] or ()) and each.info["status"] != psutil.STATUS_ZOMBIE
        ]

    def at_work(self, case: str, attempt: int = 1) -> bool:
        """Whether a rank of that case's first round has begun its work, on any node."""
        pattern = f"{self.logs}/.hosts/*/{case}/{round_folder(1, attempt)}/*_noderank0/rank0.out.log".lstrip("/")
        found = (log for host in self.cluster.hosts for log in host.path("/").glob(pattern))
        return any(STEP_BEGIN in log.read_text() for log in found)

    def said(self, words: str) -> bool:
        """Whether the log of the newest run has these words."""
        run = self.newest_run()
        return run is not None and (run / "run.log").exists() and words in (run / "run.log").read_text()
