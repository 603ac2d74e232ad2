"""Slows flows down by the marks that come back, and lets them recover, as DCQCN does; compiled by numba."""

from simulation.network.event_heap import ALPHA, DECREASE, RECOVER, jit, plan
from simulation.network.packet_state import Simulation


@jit
def slow_down(sim: Simulation, number: int) -> None:
    """Take note of a congestion mark that came back to a flow; its first one starts the two timers of DCQCN."""
    flow, now, rules = sim.flows[number], sim.totals[0].now, sim.rules
    flow.alpha_mark = flow.decrease_mark = 1
    if not flow.slowed:
        flow.slowed, flow.alpha_mark = 1, 0
        flow.target_rate, flow.alpha = flow.rate, 1.0
        plan(sim, now + rules.alpha_interval, ALPHA, number)
        plan(sim, now + rules.decrease_interval + 1, DECREASE, number)


@jit
def update_alpha(sim: Simulation, number: int) -> None:
    """Every alpha interval: alpha moves towards whether a mark came."""
    flow, rules = sim.flows[number], sim.rules
    flow.alpha += rules.ewma_gain * (flow.alpha_mark - flow.alpha)
    flow.alpha_mark = 0
    plan(sim, sim.totals[0].now + rules.alpha_interval, ALPHA, number)


@jit
def decrease_rate(sim: Simulation, number: int) -> None:
    """Every decrease interval: the rate falls by alpha / 2 if a mark came, and its recovery begins anew."""
    flow, rules, now = sim.flows[number], sim.rules, sim.totals[0].now
    plan(sim, now + rules.decrease_interval, DECREASE, number)
    if not flow.decrease_mark:
        return
    if rules.clamp_target or flow.stage > 0:
        flow.target_rate = flow.rate
    flow.rate = max(rules.min_rate, flow.rate * (1 - flow.alpha / 2))
    flow.stage, flow.decrease_mark = 0, 0
    flow.recovery = now + rules.recovery_interval
    sim.totals[0].decreases += 1
    plan(sim, flow.recovery, RECOVER, number)


@jit
def recover(sim: Simulation, number: int) -> None:
    """Every recovery interval without a decrease: half of the way to the target rate, which then rises, too."""
    flow, rules, now = sim.flows[number], sim.rules, sim.totals[0].now
    if flow.recovery != now:
        return
    if flow.stage >= rules.fast_recoveries:
        step = rules.rate_step if flow.stage == rules.fast_recoveries else rules.rate_leap
        flow.target_rate = min(flow.target_rate + step, sim.ports[sim.path[number, 0]].bps)
    flow.rate = (flow.rate + flow.target_rate) / 2
    flow.stage += 1
    flow.recovery = now + rules.recovery_interval
    plan(sim, flow.recovery, RECOVER, number)
