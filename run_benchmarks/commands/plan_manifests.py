"""Shows a plan as what a scheduler receives: Slurm's batch script with the steps, or JobSets of Kubernetes."""

import hashlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

from protocol.masking import mask_argv, mask_environment
from run_benchmarks.errors import InputProblems, Problem
from run_benchmarks.hosts.slurm.script import batch_script, step_argv
from run_benchmarks.plan.plan import CasePlan, NodePlan, RoundPlan, Task
from run_benchmarks.session.allocation import request_of, surroundings_of
from run_benchmarks.session.preparation import PreparedRun

JOB, CPUS = "SLURM_JOB_ID", "SLURM_CPUS_ON_NODE"
MAX_NAME = 63 - len("-node99999-0-0-abcde")  # of a JobSet: its pods' names are labels, and end so
DIGEST_CHARACTERS = 6


def slurm_script(prepared: PreparedRun) -> str:
    """The batch script of a run, or one of each case, and in comments the step of each node and round that run.py
    sends to its job.

    Raises:
        InputProblems: the run does not use Slurm.
    """
    if not prepared.settings.cluster.needs_allocation:
        allowed = "a cluster_conf.py with LAUNCHER = 'slurm'"
        raise InputProblems([Problem("command line", "--slurm", prepared.settings.cluster.LAUNCHER, allowed)])
    parts = [prepared.part(case.name) for case in prepared.plan.cases] if prepared.has_jobs_of_cases else [prepared]
    return "\n".join(batch_script(request_of(part)) + "".join(f"# {line}\n" for line in _steps(part)) for part in parts)


def _steps(prepared: PreparedRun) -> Iterator[str]:
    inside = surroundings_of(prepared)
    for case in prepared.plan.cases:
        for planned in case.rounds:
            for node in planned.nodes:
                options = (*inside.options, f"--job-name={node.workload.name}")
                step = step_argv(JOB, node.host, inside.prefix, options=options)
                text = " ".join(shlex.join(step).split("\n")).replace(f"--jobid={JOB}", f"--jobid=${JOB}")
                yield f"{case.name}, round {planned.index}, {node.host}:"
                yield f"  {text.replace('--cpus-per-task=1', f'--cpus-per-task=${CPUS}')} ..., in which run"
                for task in (node.monitor, node.workload):
                    yield f"    {shlex.join(mask_argv(task.bound_argv(planned.port_from)))}"


def job_sets(prepared: PreparedRun) -> dict[str, Any]:
    """The plan as a List of JobSets (jobset.x-k8s.io/v1alpha2), one for each round, without secrets.

    Raises:
        InputProblems: its tasks have no image.
    """
    plan = prepared.plan
    manifests = [_job_set(prepared, case, planned) for case in plan.cases for planned in case.rounds]
    return {"apiVersion": "v1", "kind": "List", "items": manifests}


def _job_set(prepared: PreparedRun, case: CasePlan, planned: RoundPlan) -> dict[str, Any]:
    name = _label(f"{prepared.plan.run_id}-{case.folder}-r{planned.index}")
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "annotations": planned.nodes[0].workload.labels},
        "spec": {
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [_node_job(prepared, case, planned, node) for node in planned.nodes],
        },
    }


def _label(text: str) -> str:
    """A name of at most MAX_NAME characters; where it is cut, a digest keeps it apart from others."""
    name = re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]
    return f"{name[: MAX_NAME - len(digest) - 1].rstrip('-')}-{digest}"


def _node_job(prepared: PreparedRun, case: CasePlan, planned: RoundPlan, node: NodePlan) -> dict[str, Any]:
    if node.image is None:
        allowed = "'docker': a pod needs an image"
        raise InputProblems([Problem("command line", "--kubernetes", f"RUNTIME {prepared.plan.runtime!r}", allowed)])
    vendor = prepared.resolved.vendor
    devices = {f"{vendor.name}.com/gpu": str(case.nproc)} if vendor.device_files and case.backend != "gloo" else {}
    workload = _container("workload", node, node.workload, planned.port_from)
    workload["resources"] = {"limits": devices}
    volumes = [_host_path(index, mount.source) for index, mount in enumerate(node.mounts)]
    shared_memory = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(node.options.shm_size)}}
    pod = {
        "restartPolicy": "Never",
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "nodeSelector": {"kubernetes.io/hostname": node.host},
        "containers": [workload, _container("monitor", node, node.monitor, planned.port_from)],
        "volumes": [*volumes, shared_memory],
    }
    job = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "activeDeadlineSeconds": int(case.time_limit)}
    return {
        "name": f"node{node.node_rank}",
        "replicas": 1,
        "template": {"spec": {**job, "template": {"spec": pod}}},
    }


def _host_path(index: int, source: str) -> dict[str, Any]:
    return {"name": f"mount{index}", "hostPath": {"path": source}}


def _container(name: str, node: NodePlan, task: Task, master_port: int) -> dict[str, Any]:
    """One container of a pod, with the rights that Docker gives ours."""
    mounts = [
        {"name": f"mount{index}", "mountPath": mount.target, "readOnly": mount.read_only}
        for index, mount in enumerate(node.mounts)
    ]
    capabilities = {"drop": ["ALL"], "add": list(node.options.cap_add)}
    return {
        "name": name,
        "image": node.image,
        "command": mask_argv(task.bound_argv(master_port)),
        "workingDir": node.workdir,
        "env": [{"name": key, "value": value} for key, value in sorted(mask_environment(task.environment).items())],
        "volumeMounts": [*mounts, {"name": "shm", "mountPath": "/dev/shm"}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": capabilities},
    }
