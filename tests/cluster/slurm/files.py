"""The configuration files of a test cluster's Slurm."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.host import ClusterHost

SLURM_CONF = "/etc/slurm/slurm.conf"  # on the hosts
CPUS, MEMORY_MB = 4, 2000  # declared of each host, whatever the machine has
DATABASE = "slurm_acct"
# A node that does not answer is down after SlurmdTimeout; a task that does not end at SIGTERM is killed after KillWait.
SLURM_CONF_TEXT = """\
ClusterName=bed
SlurmctldHost={head}({head_address})
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
AuthType=auth/munge
AuthInfo=socket={munge}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir=/var/spool/slurmd-%n
SlurmdPidFile=/run/slurmd-%n.pid
SlurmdLogFile=/var/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
KillWait=3
MinJobAge=600
MessageTimeout=10
TCPTimeout=2
UnkillableStepTimeout=20
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=30
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd_port}
AccountingStoragePass={munge}
AccountingStorageEnforce=associations,limits,qos
{nodes}
PartitionName=main Nodes=ALL Default=YES PriorityTier=10 MaxTime=UNLIMITED State=UP DefMemPerCPU=200
PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=CANCEL State=UP DefMemPerCPU=200
"""
NODE = (
    "NodeName={name} NodeAddr={address} CPUs={cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={cpus} "
    "ThreadsPerCore=1 RealMemory={memory} State=UNKNOWN"
)
SLURMDBD_CONF_TEXT = """\
AuthType=auth/munge
AuthInfo=socket={munge}
DbdHost={head}
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql_port}
StorageUser=slurm
StoragePass=slurm
StorageLoc={database}
"""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the daemons of one cluster meet: its folder and the socket of munged, and ports of the head node."""

    folder: Path
    munge: Path
    ctld_port: int
    dbd_port: int
    sql_port: int
    slurmd_port: int = 6818  # every host has a network of its own

    @property
    def conf(self) -> Path:
        """slurm.conf on the head node."""
        return self.folder / "slurm.conf"


def write(places: Places, hosts: Sequence[ClusterHost], head_address: str, settings: Mapping[str, str]) -> None:
    """Write slurm.conf for the head node and the same for every host, and slurmdbd.conf; `settings` replace others."""
    head = socket.gethostname().partition(".")[0]
    nodes = [NODE.format(name=host.name, address=host.address, cpus=CPUS, memory=MEMORY_MB) for host in hosts]
    values = {
        **vars(places),
        "head": head,
        "head_address": head_address,
        "nodes": "\n".join(nodes),
    }
    lines = (line for line in SLURM_CONF_TEXT.format(**values).splitlines() if line.partition("=")[0] not in settings)
    text = "\n".join([*(f"{key}={value}" for key, value in settings.items()), *lines, ""])
    places.conf.write_text(text)
    for host in hosts:
        file = host.path(SLURM_CONF)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    dbd = places.folder / "slurmdbd.conf"
    dbd.touch(mode=0o600)
    dbd.write_text(SLURMDBD_CONF_TEXT.format(**values, database=DATABASE))
