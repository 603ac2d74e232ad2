"""Draws a network of at most 128 GPUs as SVG: servers at the bottom, above them leaves, spines and further tiers."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import NamedTuple

from common import units
from common.errors import input_problem
from common.summary import counted
from simulation.topology import structure
from simulation.topology.fabric import GPU, NVSWITCH, SWITCH, Fabric, kind_of, names, tiers


def element(tag: str, /, *content: str, **attributes: str | float) -> str:
    """An element of SVG, whose `attributes` keep their order; _ in a name is -, one at its end falls.

    Lengths have pixels as their unit; a float has one digit after the point.

    content is SVG, so that text goes through `escape` first.
    """
    said = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{f"{value:.1f}" if isinstance(value, float) else value}"'
        for name, value in attributes.items()
    )
    return f"<{tag}{said}>{''.join(content)}</{tag}>" if content else f"<{tag}{said}/>"


MOST_GPUS = 128
GPU_WIDTH, GAP, MARGIN, TOP = 22, 14, 24, 64
LEAST_TIER, MOST_TIER, SWITCH_WIDTH, SWITCH_HEIGHT, GPU_HEIGHT = 150, 340, 92, 30, 24
SERVER_HEIGHT, LEGEND_LINE = 118, 18
LEAST_WIDTH = 760
LEAST_ARC, MOST_ARC = 10, 40
GREY, RED = "#7a828c", "#d0312d"
STYLE = (
    "text{font:11px sans-serif;fill:#1b1f24;text-anchor:middle}.left{text-anchor:start}.title{font-size:16px;"
    "font-weight:bold;text-anchor:start}.small{font-size:9px}line,path{stroke-opacity:.55;fill:none}.box{fill:#f3f5f7;stroke:#9aa3ad}"
    f".slow{{stroke:{RED};stroke-width:2.5;stroke-dasharray:5 3;stroke-opacity:1}}"
)


class _Stack(NamedTuple):
    """Switches with the same links, drawn as one: the first one's id, how many there are, and the middle of the box."""

    node: int
    size: int
    x: float
    y: float
    width: float


class Drawing:
    """Places a network's nodes and writes them as SVG; lengths are in pixels."""

    def __init__(self, fabric: Fabric, title: str, slow_gpus: Mapping[int, float]) -> None:
        self._fabric, self._title, self._slow = fabric, title, slow_gpus
        self._tier = tiers(fabric)
        self._names = names(fabric, self._tier)
        self._servers = _with_cut_gpus(structure.servers(fabric), fabric.gpus_per_server)
        gpus = fabric.gpus
        self.width = max(2 * MARGIN + gpus * GPU_WIDTH + len(self._servers) * (GAP + 10) - GAP, LEAST_WIDTH)
        self._tier_height = round(min(max(self.width / 9, LEAST_TIER), MOST_TIER))  # wide pictures need steep lines
        self._speeds = structure.links_by_speed(fabric, self._tier)
        levels = max(self._tier, default=0) + (
            SWITCH in [r for r, t in zip(fabric.roles, self._tier, strict=True) if not t]
        )
        self._server_y = TOP + levels * self._tier_height
        self.height = self._server_y + SERVER_HEIGHT + 30 + LEGEND_LINE * (len(self._speeds) + 2)
        self._slow_links = 0
        self._stack_of = self._find_stacks()
        self._at: dict[int, tuple[float, float]] = {}
        self._stacks: dict[int, _Stack] = {}
        self._boxes: list[tuple[float, float, int]] = []
        self._place_servers()
        for level in range(levels):
            self._place_tier(level + 1 if level < max(self._tier, default=0) else 0, level)
        leaves = [node for node, its in enumerate(self._tier) if its == 1]
        self._hue = {node: round(360 * number / max(len(leaves), 1)) for number, node in enumerate(leaves)}

    def _find_stacks(self) -> dict[int, int]:
        """For each NVSwitch and each switch above the leaves the first one that has the same links."""
        links: dict[int, list[tuple[int, int]]] = {}
        for a, b, kind in self._fabric.links():
            links.setdefault(a, []).append((b, kind))
            links.setdefault(b, []).append((a, kind))
        first: dict[tuple[int, frozenset[tuple[int, int]]], int] = {}
        found = {}
        for node, role in enumerate(self._fabric.roles):
            if role == NVSWITCH or (role == SWITCH and self._tier[node] != 1):
                key = (self._tier[node], frozenset(links.get(node, ())))
                found[node] = first.setdefault(key, node)
        return found

    def _place_servers(self) -> None:
        free = self.width - 2 * MARGIN - self._fabric.gpus * GPU_WIDTH - 10 * len(self._servers)
        gap = free / max(len(self._servers) - 1, 1) if len(self._servers) > 1 else 0
        x = float(MARGIN)
        nvswitches: dict[int, list[int]] = {}
        for a, b, _ in self._fabric.links():
            for gpu, other in ((a, b), (b, a)):
                if self._fabric.roles[gpu] == GPU and self._fabric.roles[other] == NVSWITCH:
                    nvswitches.setdefault(gpu, []).append(other)
        for gpus in self._servers:
            width = len(gpus) * GPU_WIDTH + 10
            self._boxes.append((x, width, len(gpus)))
            for number, gpu in enumerate(gpus):
                self._at[gpu] = (x + 5 + (number + 0.5) * GPU_WIDTH, self._server_y + 16)
            mine = sorted({switch for gpu in gpus for switch in nvswitches.get(gpu, ())})
            self._place(mine, x + 4, width - 8, self._server_y + 84)
            x += width + gap

    def _place_tier(self, tier: int, level: int) -> None:
        nodes = [node for node, role in enumerate(self._fabric.roles) if role == SWITCH and self._tier[node] == tier]
        self._place(nodes, MARGIN, self.width - 2 * MARGIN, self._server_y - (level + 1) * self._tier_height + 50)

    def _place(self, nodes: list[int], left: float, width: float, y: float) -> None:
        """Put switches, each stack once, evenly into a row."""
        stacks: dict[int, int] = {}
        for node in nodes:
            first = self._stack_of.get(node, node)
            stacks[first] = stacks.get(first, 0) + 1
        step = width / max(len(stacks), 1)
        for number, (node, size) in enumerate(stacks.items()):
            x = left + (number + 0.5) * step
            self._stacks[node] = _Stack(node, size, x, y, min(SWITCH_WIDTH, step - 4))
            self._at[node] = (x, y)
        for node in nodes:
            self._at[node] = self._at[self._stack_of.get(node, node)]

    def svg(self) -> str:
        """The picture."""
        shown = "".join(f"{line}\n" for line in (*self._lines(), *self._nodes(), *self._legend()))
        size = f'width="{self.width:.0f}" height="{self.height}" viewBox="0 0 {self.width:.0f} {self.height}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{STYLE}</style>\n'
            f"{element('rect', width='100%', height='100%', fill='white')}\n"
            f"{element('text', escape(self._title), class_='title', x=MARGIN, y=28)}\n{shown}</svg>\n"
        )

    def _lines(self) -> Iterator[str]:
        """One line per link of what is drawn; a link slower than others of its kind is red and broken."""
        fabric, tier = self._fabric, self._tier
        speed = [units.bandwidth_bps(text.bandwidth) for text in fabric.texts]
        fastest: dict[tuple[str, str], float] = {}
        kind_names = [kind_of(role, tier[node]) for node, role in enumerate(fabric.roles)]
        for a, b, kind in fabric.links():
            pair = (kind_names[a], kind_names[b])
            fastest[pair] = max(fastest.get(pair, 0.0), speed[kind])
        drawn = set()
        for a, b, kind in fabric.links():
            slow = speed[kind] < fastest[kind_names[a], kind_names[b]] * 0.999
            line = (self._at[a], self._at[b], slow)
            if line in drawn:
                continue
            drawn.add(line)
            self._slow_links += slow
            leaf = next((node for node in (a, b) if tier[node] == 1 and fabric.roles[a + b - node] == GPU), None)
            colour = GREY if leaf is None else f"hsl({self._hue[leaf]} 65% 42%)"
            yield self._line(a, b, {"class": "slow"} if slow else {"stroke": colour})

    def _line(self, a: int, b: int, look: dict[str, str]) -> str:
        """A straight line, or between nodes of one row an arc over what stands between them."""
        (x1, y1), (x2, y2) = self._ends(a, b)
        if y1 != y2:
            return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **look)
        top = y1 - (GPU_HEIGHT if self._fabric.roles[a] == GPU else SWITCH_HEIGHT) / 2
        bend = top - 2 * min(LEAST_ARC + abs(x2 - x1) / 20, MOST_ARC)
        return element("path", d=f"M{x1:.1f} {top:.1f}Q{(x1 + x2) / 2:.1f} {bend:.1f} {x2:.1f} {top:.1f}", **look)

    def _ends(self, a: int, b: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Where a line leaves its boxes: at the top of the lower one and at the bottom of the upper one."""
        half = [GPU_HEIGHT / 2 if self._fabric.roles[node] == GPU else SWITCH_HEIGHT / 2 for node in (a, b)]
        (x1, y1), (x2, y2) = self._at[a], self._at[b]
        down = (y2 > y1) - (y2 < y1)
        return (x1, y1 + down * half[0]), (x2, y2 - down * half[1])

    def _nodes(self) -> Iterator[str]:
        for number, (x, width, gpus) in enumerate(self._boxes):
            yield element(
                "rect", x=x, y=self._server_y - 8, width=int(width), height=SERVER_HEIGHT, rx=5, fill="none",
                stroke="#9aa3ad",
            )  # fmt: skip
            label, below = f"server {number}" if gpus > 2 else f"s{number}", self._server_y + SERVER_HEIGHT + 4
            yield element("text", label, class_="small", x=x + width / 2, y=below)
        yield from self._gpus()
        for stack in self._stacks.values():
            yield from self._switch(stack)

    def _gpus(self) -> Iterator[str]:
        leaf_of: dict[int, int] = {}
        for a, b, _ in self._fabric.links():
            for gpu, leaf in ((a, b), (b, a)):
                if self._fabric.roles[gpu] == GPU and self._tier[leaf] == 1:
                    leaf_of.setdefault(gpu, leaf)
        for server in self._servers:
            for gpu in server:
                x, y = self._at[gpu]
                fill = f"hsl({self._hue[leaf_of[gpu]]} 70% 88%)" if gpu in leaf_of else "#ffffff"
                number = self._names[gpu].removeprefix("gpu")
                slow = self._slow.get(int(number))
                edge = {"stroke": "#5b6570"} if slow is None else {"stroke": RED, "stroke_width": "2.5"}
                hint = f"gpu{number}" + (f", {slow:g} of its speed" if slow is not None else "")
                yield element(
                    "rect", element("title", hint),
                    x=x - 9.5, y=float(y - 12), width=19, height=GPU_HEIGHT, rx=3, fill=fill, **edge,
                )  # fmt: skip
                yield element("text", number, class_="small", x=x, y=float(y + 3))

    def _switch(self, stack: _Stack) -> Iterator[str]:
        """A box, behind it up to two more if it is a stack."""
        x, y = stack.x - stack.width / 2, stack.y - SWITCH_HEIGHT / 2
        for shift in range(min(stack.size - 1, 2), -1, -1):
            yield element(
                "rect", class_="box", x=x + 3 * shift, y=y - 3 * shift, width=float(stack.width), height=SWITCH_HEIGHT,
                rx=4,
            )  # fmt: skip
        name = self._names[stack.node]
        kind = "NVSwitch" if self._fabric.roles[stack.node] == NVSWITCH else name.rstrip("0123456789")
        number = name.removeprefix("nvswitch") if kind == "NVSwitch" else name.removeprefix(kind)
        label = f"{stack.size} {kind}{'es' if kind[-1] in 'hx' else 's'}" if stack.size > 1 else f"{kind} {number}"
        if stack.width < 6.2 * len(label):
            label = f"{stack.size} NV" if kind == "NVSwitch" else (f"{stack.size}×" if stack.size > 1 else number)
        yield element("text", escape(label), x=stack.x, y=float(stack.y + 4))

    def _legend(self) -> Iterator[str]:
        y = self._server_y + SERVER_HEIGHT + 30
        texts = [
            f"{counted(each.links, 'link')} {each.between}: {each.text.bandwidth}, {each.text.latency}"
            for each in self._speeds
        ]
        if self._slow_links:
            texts.append("red, broken: a link slower than others of its kind")
        if self._slow:
            texts.append(
                "red frame: a slow GPU ("
                + ", ".join(f"{gpu}: {its:g}" for gpu, its in sorted(self._slow.items()))
                + ")"
            )
        for number, text in enumerate(texts):
            yield element("text", escape(text), class_="left", x=MARGIN, y=y + number * LEGEND_LINE)


def _with_cut_gpus(servers: list[list[int]], per_server: int) -> list[list[int]]:
    """The servers, GPUs that are cut off their NVSwitches among the others of theirs."""
    alone = {each[0] for each in servers if len(each) == 1}
    found = []
    for server in servers:
        first = server[0] // max(per_server, 1) * per_server
        its = [gpu for gpu in range(first, first + per_server) if gpu in alone or gpu in server]
        if len(server) > 1 and len(its) == per_server and {*server} <= {*its}:
            server, alone = its, alone - {*its}
        found.append(server)
    return [each for each in found if len(each) > 1 or each[0] in alone]


def draw(fabric: Fabric, title: str, slow_gpus: Mapping[int, float], file: str) -> str:
    """The picture of a network; `slow_gpus` have that share of their speed and are red.

    Raises:
        InputProblems: it has more than MOST_GPUS GPUs.
    """
    if fabric.gpus > MOST_GPUS:
        raise input_problem(
            file, f"has {fabric.gpus} GPUs", f"at most {MOST_GPUS} can be drawn so that one can read it"
        )
    return Drawing(fabric, title, slow_gpus).svg()
