"""Moves flows at their max-min fair rates from one event to the next.

The code takes lists as they are; `compiled.py` compiles it by numba for arrays. Times are ns, sizes bytes. A link has
room for 1: ns of sending within each ns. A lane is what all flows of the same size on the same way have: the time that
a byte takes of each link, ACKs on the way back included. Rates are fair in bytes.
"""

from simulation.network.flow_level.fluid_state import (
    ACTIVE,
    BEHIND,
    CHANGED,
    COMPLETED,
    ENDED,
    EVENTS,
    NOW,
    PLANNED,
    RELEASED,
    STAMP,
    STARTED,
    TIGHT,
    Fluid,
    Whole,
)

TOGETHER_NS = 0.5  # events that are no further apart are one event
ALIKE = 1e-9  # links whose fair rates differ by less are full at once
FULL = 1e-6  # of a link's room is left where it is full
UNLIMITED = 1e9  # bytes per ns
FOREVER = 1e300


def plan(state: Fluid, time: float, what: int, flow: int) -> None:
    """Put an event on the heap, which is ordered by time (ns) and then by order of planning."""
    times, kinds, counts = state.event_time, state.event_kind, state.counts
    place, order = counts[EVENTS], counts[PLANNED]
    counts[EVENTS] += 1
    counts[PLANNED] += 1
    while place > 0:
        above = (place - 1) >> 1
        if times[above] <= time:
            break
        times[place], kinds[place], state.event_flow[place] = times[above], kinds[above], state.event_flow[above]
        state.event_order[place] = state.event_order[above]
        place = above
    times[place], kinds[place], state.event_flow[place], state.event_order[place] = time, what, flow, order


def drop_first(state: Fluid) -> None:
    """Take the first event off the heap."""
    times, orders, kinds, counts = state.event_time, state.event_order, state.event_kind, state.counts
    counts[EVENTS] -= 1
    count, place = counts[EVENTS], 0
    time, order = times[count], orders[count]
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        other = child + 1
        if other < count and (
            times[other] < times[child] or (times[other] == times[child] and orders[other] < orders[child])
        ):
            child = other
        if time < times[child] or (time == times[child] and order < orders[child]):
            break
        times[place], orders[place], kinds[place] = times[child], orders[child], kinds[child]
        state.event_flow[place] = state.event_flow[child]
        place = child
    times[place], orders[place], kinds[place] = time, order, kinds[count]
    state.event_flow[place] = state.event_flow[count]


def lane_of(state: Fluid, flow: int) -> int:
    """The lane of a flow: its own, or that of its hop."""
    lane: int = state.flow_lane[flow] if len(state.flow_lane) else state.hop_lane[state.flow_hop[flow]]
    return lane


def note_change(state: Fluid, lane: int) -> None:
    """The rates of a lane's flows have to be found anew."""
    counts = state.counts
    if state.lane_mark[lane] != counts[STAMP]:
        state.lane_mark[lane] = counts[STAMP]
        state.changed[counts[CHANGED]] = lane
        counts[CHANGED] += 1


def enter(state: Fluid, lane: int) -> None:
    """One more flow is active on a lane: it stands in the list of each of its links."""
    note_change(state, lane)
    state.lane_flows[lane] += 1
    if state.lane_flows[lane] > 1 or len(state.entry_lane) == 0:
        return
    for at in range(state.load_begin[lane], state.load_begin[lane + 1]):
        link = state.load_link[at]
        following = state.first_entry[link]
        state.entry_before[at], state.entry_after[at] = -1, following
        if following >= 0:
            state.entry_before[following] = at
        state.first_entry[link] = at


def leave(state: Fluid, lane: int) -> None:
    """One flow less is active on a lane."""
    note_change(state, lane)
    state.lane_flows[lane] -= 1
    if state.lane_flows[lane] > 0 or len(state.entry_lane) == 0:
        return
    for at in range(state.load_begin[lane], state.load_begin[lane + 1]):
        before, following = state.entry_before[at], state.entry_after[at]
        if following >= 0:
            state.entry_before[following] = before
        if before >= 0:
            state.entry_after[before] = following
        else:
            state.first_entry[state.load_link[at]] = following


def open_links(state: Fluid) -> int:
    """Note all lanes that have a link in common with a changed one, and so on; returns the number of their links.

    Where each flow has a lane of its own, these are all lanes: links have no lists.
    """
    counts, stamp = state.counts, state.counts[STAMP]
    if len(state.entry_lane) == 0:
        for place in range(counts[ACTIVE]):
            note_change(state, state.active_lane[place])
    number = place = 0
    while place < counts[CHANGED]:
        lane = state.changed[place]
        place += 1
        for at in range(state.load_begin[lane], state.load_begin[lane + 1]):
            link = state.load_link[at]
            if state.mark[link] != stamp:
                state.mark[link] = stamp
                state.touched[number] = link
                number += 1
                if len(state.entry_lane):
                    entry = state.first_entry[link]
                    while entry >= 0:
                        note_change(state, state.entry_lane[entry])
                        entry = state.entry_after[entry]
    return number


def weigh(state: Fluid, links: int) -> int:
    """Count for each opened link the active flows and the time that a byte of each takes; returns the flows."""
    for at in range(links):
        link = state.touched[at]
        state.room[link], state.weight[link], state.data[link] = 1.0, 0.0, 0.0
        state.crowd[link] = 0
    number = 0
    for place in range(state.counts[ACTIVE]):
        lane = state.active_lane[place]
        if state.lane_mark[lane] == state.counts[STAMP]:
            state.waiting_rate[number] = place
            number += 1
            for at in range(state.load_begin[lane], state.load_begin[lane + 1]):
                state.weight[state.load_link[at]] += state.load_cost[at]
                state.crowd[state.load_link[at]] += 1
    return number


def lowest_rate(state: Fluid, number: int) -> float:
    """The fair rate of the link that is full first (bytes per ns)."""
    lowest = FOREVER
    for at in range(number):
        link = state.touched[at]
        if state.crowd[link] > 0:
            lowest = min(lowest, max(state.room[link], 0.0) / state.weight[link])
    return lowest


def is_limited(state: Fluid, lane: int, limit: float) -> bool:
    """Whether a link of a lane is full when everybody on it has this rate (bytes per ns)."""
    for at in range(state.load_begin[lane], state.load_begin[lane + 1]):
        link = state.load_link[at]
        if state.room[link] <= limit * state.weight[link]:
            return True
    return False


def share_out(state: Fluid) -> None:
    """Give every active flow that a change can reach its max-min fair rate (bytes per ns) by progressive filling."""
    number = open_links(state)
    if len(state.lane_most):
        open_windows(state)
    fill(state, number)
    if len(state.lane_most) and windows_wait(state):
        fill(state, number)
    note_queues(state, number)
    if len(state.lane_most):
        note_doubts(state)
    state.counts[CHANGED] = 0
    state.counts[STAMP] += 1


def open_windows(state: Fluid) -> None:
    """Let the windows of changed lanes leave to each flow what they leave to it alone."""
    for at in range(state.counts[CHANGED]):
        lane = state.changed[at]
        state.lane_most[lane] = 1 / state.lane_alone[lane] if state.lane_alone[lane] > 0 else UNLIMITED


def windows_wait(state: Fluid) -> bool:
    """Let changed lanes wait for ACKs behind the packets that are now on the links back; whether that changes rates."""
    for at in range(state.counts[CHANGED]):
        lane = state.changed[at]
        if state.lane_turns[lane] > 0:
            wait, part = 0.0, state.lane_phase[lane]
            for place in range(state.wait_begin[lane], state.wait_begin[lane + 1]):
                link = state.wait_link[place]
                wait += 2 * part * state.lane_half[lane] * state.wait_byte[place] * min(state.data[link], 1.0)
                part = 1.0
            state.lane_most[lane] = 1 / (state.lane_alone[lane] + state.lane_turns[lane] * wait)
    for place in range(state.counts[ACTIVE]):
        lane = state.active_lane[place]
        if state.lane_mark[lane] == state.counts[STAMP] and state.rate[place] > state.lane_most[lane] * (1 + ALIKE):
            return True
    return False


def hold_back(state: Fluid, number: int, lowest: float) -> int:
    """Give the first `number` waiting flows whose windows leave less than `lowest` (bytes per ns) that; returns the
    others."""
    kept = 0
    for at in range(number):
        place = state.waiting_rate[at]
        lane = state.active_lane[place]
        if state.lane_most[lane] <= lowest:
            state.rate[place] = state.lane_most[lane]
            take(state, lane, state.lane_most[lane])
        else:
            state.waiting_rate[kept] = place
            kept += 1
    return kept


def fill(state: Fluid, number: int) -> None:
    """Progressive filling of the first `number` touched links."""
    left = weigh(state, number)
    while left > 0:
        lowest = lowest_rate(state, number)
        if len(state.lane_most):
            kept = hold_back(state, left, lowest)
            if kept < left:
                left = kept
                continue
        if lowest >= UNLIMITED:  # packets so small that they take no whole ns
            for at in range(left):
                state.rate[state.waiting_rate[at]] = UNLIMITED
            break
        limit = lowest * (1 + ALIKE)
        kept, fixed = 0, left
        for at in range(left):
            place = state.waiting_rate[at]
            if is_limited(state, state.active_lane[place], limit):
                fixed -= 1
                state.fixed[fixed] = place
            else:
                state.waiting_rate[kept] = place
                kept += 1
        for at in range(fixed, left):
            place = state.fixed[at]
            state.rate[place] = lowest
            take(state, state.active_lane[place], lowest)
        left = kept


def take(state: Fluid, lane: int, rate: float) -> None:
    """Take from the links of a lane what one of its flows needs at a rate (bytes per ns)."""
    for at in range(state.load_begin[lane], state.load_begin[lane + 1]):
        link = state.load_link[at]
        cost = state.load_cost[at]
        state.room[link] -= cost * rate
        state.weight[link] -= cost
        state.crowd[link] -= 1
        if at < state.data_end[lane]:
            state.data[link] += cost * rate


def note_queues(state: Fluid, number: int) -> None:
    """Add up what a full link may hold back of flows whose first link has room: their packets queue up before it."""
    for at in range(number):
        state.held[state.touched[at]] = state.entered[state.touched[at]] = 0
    for place in range(state.counts[ACTIVE]):
        lane = state.active_lane[place]
        first = state.load_begin[lane]
        if (
            state.lane_mark[lane] != state.counts[STAMP]
            or first == state.data_end[lane]
            or state.room[state.load_link[first]] < FULL
        ):
            continue
        more = state.room[state.load_link[first]] / state.load_cost[first]
        waiting = more / (state.rate[place] + more)  # of what leaves before the first ACK is back
        if len(state.lane_most) and state.lane_turns[lane] > 0:
            trip = (1 / state.lane_most[lane] - state.lane_alone[lane]) / state.lane_turns[lane]
            trip += state.lane_delay[lane]
            waiting = max(waiting, 1 - state.rate[place] * trip / state.lane_burst[lane])
        else:
            state.clock[BEHIND] = max(state.clock[BEHIND], waiting)
        for at in range(first + 1, state.data_end[lane]):
            link = state.load_link[at]
            if state.room[link] < FULL and waiting > 0:
                state.held[link] += int(state.load_burst[at] * waiting)
                state.peak_held[link] = max(state.peak_held[link], state.held[link])
                before = state.load_link[at - 1]
                state.entered[before] += int(state.load_burst[at - 1] * waiting)
                state.peak_entered[before] = max(state.peak_entered[before], state.entered[before])


def note_doubts(state: Fluid) -> None:
    """Remember how near a window comes to its flow's rate, if its ACKs wait as long as they can: for a packet at each
    port, or in the queues of data before ports."""
    clock = state.clock
    for place in range(state.counts[ACTIVE]):
        lane = state.active_lane[place]
        if state.lane_mark[lane] == state.counts[STAMP] and state.lane_turns[lane] > 0:
            behind = 0.0
            for at in range(state.wait_begin[lane], state.wait_begin[lane + 1]):
                behind += state.wait_byte[at] * state.held[state.wait_link[at]]
            clock[TIGHT] = max(clock[TIGHT], state.rate[place] * state.lane_slowest[lane])
            clock[BEHIND] = max(clock[BEHIND], state.rate[place] * behind / state.lane_burst[lane])


def until_drained(state: Fluid) -> float:
    """The time until the first active flow has sent its last byte."""
    least = FOREVER
    for place in range(state.counts[ACTIVE]):
        least = min(least, state.left[place] / state.rate[place])
    return least


def move(state: Fluid, took: float) -> None:
    """Let all active flows send for a while (ns)."""
    for place in range(state.counts[ACTIVE]):
        state.left[place] -= state.rate[place] * took


def drain(state: Fluid) -> None:
    """Flows that have sent their last byte leave; the last ACK of each is there after its way, and half a packet's wait
    on each link back that is in use by data."""
    counts, kept = state.counts, 0
    for place in range(counts[ACTIVE]):
        flow, lane = state.active[place], state.active_lane[place]
        if state.left[place] > state.rate[place] * TOGETHER_NS:
            state.active[kept], state.active_lane[kept] = flow, lane
            state.left[kept], state.rate[kept] = state.left[place], state.rate[place]
            kept += 1
            continue
        after = state.lane_delay[lane]
        if not len(state.lane_most) or state.rate[place] < state.lane_most[lane]:
            for at in range(state.wait_begin[lane], state.wait_begin[lane + 1]):
                after += state.wait_byte[at] * state.lane_half[lane] * min(state.data[state.wait_link[at]], 1.0)
        end = state.clock[NOW] + max(state.left[place], 0.0) / state.rate[place] + after
        if state.hop_late[state.flow_hop[flow]] > 0.0:
            end_late(state, state.flow_hop[flow], lane, end)
        plan(state, end, COMPLETED, flow)
        leave(state, lane)
    counts[ACTIVE] = kept


def end_late(state: Fluid, hop: int, lane: int, end: float) -> None:
    """The parts of a flow with this end (ns) end later if its receiver's link, which got a packet late, is full."""
    last = state.data_end[lane] - 1
    if last >= state.load_begin[lane] and state.room[state.load_link[last]] < FULL:
        for part in (state.out_part[hop], state.in_part[hop]):
            if part >= 0:
                state.part_until[part] = max(state.part_until[part], end + state.hop_late[hop])


def settle(state: Fluid, flow: int, gap: float) -> None:
    """One of those that a flow waits for is there; `gap` ns after the last one it starts."""
    state.waiting[flow] -= 1
    if state.waiting[flow] == 0:
        plan(state, state.clock[NOW] + max(gap, 0.0), STARTED, flow)


def issue(state: Fluid, hops: Whole, gap: float) -> None:
    """A sender begins its part of a collective: in `gap` ns all flows of its hops may start that wait for nothing else.

    `hops` is a list, for compiled code an array.
    """
    for hop in hops:
        for flow in range(state.hop_begin[hop], state.hop_begin[hop] + state.hop_steps[hop]):
            settle(state, flow, gap)


def count_down(state: Fluid, part: int, number: int) -> None:
    """Flows of a rank's part of a collective are complete; after the last one it is noted as ended."""
    if part < 0:
        return
    state.pending[part] -= number
    if state.pending[part] == 0:
        state.ended[state.counts[ENDED]] = part
        state.counts[ENDED] += 1


def start(state: Fluid, flow: int) -> None:
    """A flow begins to send."""
    counts, hop = state.counts, state.flow_hop[flow]
    place = counts[ACTIVE]
    state.active[place], state.active_lane[place] = flow, lane_of(state, flow)
    state.left[place] = state.hop_size[hop]
    state.start[flow] = state.clock[NOW]
    counts[ACTIVE] += 1
    enter(state, state.active_lane[place])


def complete(state: Fluid, flow: int) -> None:
    """The last ACK of a flow is back: its receipt is handled, unless the one before it on its hop is missing."""
    hop = state.flow_hop[flow]
    state.end[flow] = state.clock[NOW]
    count_down(state, state.out_part[hop], state.out_count[hop])
    step = flow - state.hop_begin[hop]
    if step == state.released[hop]:
        release(state, flow)


def release(state: Fluid, flow: int) -> None:
    """Handle a receipt: flows that waited for it may start, and the next one that was held back follows."""
    hop = state.flow_hop[flow]
    begin, step = state.hop_begin[hop], flow - state.hop_begin[hop]
    state.released[hop] = step + 1
    for at in range(state.child_begin[hop], state.child_begin[hop + 1]):
        child = state.child_hop[at]
        number = step + state.child_shift[at]
        if 0 <= number < state.hop_steps[child]:
            settle(state, state.hop_begin[child] + number, state.hop_gap[child])
    count_down(state, state.in_part[hop], state.in_count[hop])
    following = step + 1
    if following < state.hop_steps[hop] and state.end[begin + following] >= 0:
        plan(state, state.clock[NOW] + state.release_gap[hop], RELEASED, begin + following)


def handle_events(state: Fluid) -> None:
    """Carry out the events of this moment."""
    while state.counts[EVENTS] > 0 and state.event_time[0] <= state.clock[NOW] + TOGETHER_NS:
        what, flow = state.event_kind[0], state.event_flow[0]
        time = state.event_time[0]
        drop_first(state)
        if what == STARTED:
            start(state, flow)
        elif what == COMPLETED:
            complete(state, flow)
            state.end[flow] = time
        else:
            release(state, flow)


def run(state: Fluid, until: float, most: int) -> int:
    """Go on until a rank's part ends, to a moment (ns), or for `most` events; returns the events left."""
    counts, clock = state.counts, state.clock
    while most > 0:
        if counts[CHANGED]:
            share_out(state)
        following = clock[NOW] + until_drained(state)
        if counts[EVENTS] > 0:
            following = min(following, state.event_time[0])
        if following > until or following >= FOREVER:
            if until < FOREVER:
                move(state, until - clock[NOW])
                clock[NOW] = until
            return most
        move(state, max(following - clock[NOW], 0.0))
        clock[NOW] = max(following, clock[NOW])
        drain(state)
        handle_events(state)
        most -= 1
        if counts[ENDED] > 0:
            return most
    return most
