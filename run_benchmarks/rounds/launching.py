"""Makes the tasks of a round on one node: its monitor, which starts immediately, and its workload."""

from run_benchmarks.inspection.power_meters import with_power_meters
from run_benchmarks.plan.plan import RoundPlan
from run_benchmarks.runtimes.base import Bound
from run_benchmarks.state.context import RunContext, RunningNode

SECONDS = 60.0
# What an earlier monitor of the same round wrote: the next one writes into no file that is there already.
NO_SAMPLES = 'find "$1" -mindepth 1 -maxdepth 1 -type f -delete'


def create_tasks(node: RunningNode, context: RunContext, plan: RoundPlan, master_port: int) -> None:
    """Start the monitor of a node and make its workload's task, which is not started yet.

    May be called again after a link broke: what the earlier call made is removed first.
    """
    node.is_made = False
    if node.monitor is not None and node.workload is not None:
        node.monitor.remove()
        node.workload.remove()
        node.host.run(["sh", "-c", NO_SAMPLES, "sh", node.plan.log_dir_host], deadline=SECONDS)
    node.monitor = context.runtime.attach(node.host, node.plan, node.plan.monitor)
    node.workload = context.runtime.attach(node.host, node.plan, node.plan.workload)
    bound = bind(node, context, plan, master_port)
    facts = context.reports[node.plan.host].facts
    assert facts is not None
    watching = with_power_meters(bound, facts)
    node.monitor = context.runtime.create(node.host, node.plan, node.plan.monitor, watching)
    node.monitor.start()
    node.workload = context.runtime.create(node.host, node.plan, node.plan.workload, bound)
    node.is_made = True


def start_workload(node: RunningNode) -> None:
    """Start a node's workload; does nothing if an earlier call, whose answer was lost, has started it."""
    assert node.workload is not None
    if node.is_asked and node.workload.exists():
        return
    node.is_asked = True
    node.workload.start()


def bind(node: RunningNode, context: RunContext, plan: RoundPlan, master_port: int) -> Bound:
    """Values of a node's tasks that are known only now: the port, image id, user and peers' addresses."""
    report = context.reports[node.plan.host]
    facts = report.facts
    assert facts is not None
    names = [peer.host for peer in plan.nodes] if len(plan.nodes) > 1 else []
    image_id = context.image_id(node.plan)
    known = {"docker_version": report.docker_version, "image_id": image_id}
    return Bound(
        master_port=master_port,
        image=image_id,
        user=f"{facts.uid}:{facts.gid}",
        extra_hosts={name: context.hosts[name].address for name in names if name not in facts.resolves},
        devices=facts.link_devices if len(names) > 1 else (),
        device_files=facts.devices,
        facts={key: value for key, value in known.items() if value},
    )
