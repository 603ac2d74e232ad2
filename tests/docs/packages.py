"""docs/data/packages.csv and rooms.csv, which docs/explanation/architecture.md shows: sizes, and who imports whom.

Numbers are rounded and may drift by DRIFT before the table has to be written again; names and imports are exact.
"""

import csv
import functools
import io
from collections import defaultdict
from dataclasses import dataclass

import grimp

from tests.product import PACKAGES, ROOT

TABLE = ROOT / "docs" / "data" / "packages.csv"
ROOMS = TABLE.with_name("rooms.csv")
ROUND_TO = 100  # lines
PLACES = {
    "top level": "",
    "`workloads` (`aicb` before)": "workloads",
    "`aicb/pytorch` (`aicb` before)": "training.benchmarks.aicb.pytorch",
    "`network`": "training.benchmarks.network",
    "`driver/training`": "training.benchmarks.driver.training",
}
DRIFT = 0.25  # of the number in the table, at least SMALL modules or ROUND_TO lines
SMALL = 2
COMMAND = "python -m tests.docs"
HEADER = ("package", "modules", "lines", "imports")


@dataclass(frozen=True)
class Package:
    """A package or room: how many modules and lines it has, and which others it imports, by their short names."""

    modules: int
    lines: int
    imports: tuple[str, ...]


def package_of(module: str) -> str:
    """A module's row: a room of the controller or of the driver, a benchmark, else the top package."""
    parts = module.split(".")
    if parts[:3] == ["training", "benchmarks", "driver"] and len(parts) > 3:
        return ".".join(parts[:4])
    if parts[:2] == ["training", "benchmarks"] and len(parts) > 2:
        return ".".join(parts[:3])
    if parts[0] == "run_benchmarks" and len(parts) > 1 and (ROOT / "run_benchmarks" / parts[1]).is_dir():
        return ".".join(parts[:2])
    return parts[0]


def short(package: str) -> str:
    """`settings` for run_benchmarks.settings, `driver.launch` for training.benchmarks.driver.launch."""
    return package.removeprefix("run_benchmarks.").removeprefix("training.benchmarks.")


@functools.cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def measured() -> dict[str, Package]:
    """Every package of the code, sorted by name; a package with nothing but empty `__init__.py` is left out."""
    graph = _graph()
    modules: defaultdict[str, int] = defaultdict(int)
    lines: defaultdict[str, int] = defaultdict(int)
    imports: defaultdict[str, set[str]] = defaultdict(set)
    for module in graph.modules:
        package, length = package_of(module), _lines(module)
        if not length:
            continue
        modules[package] += 1
        lines[package] += length
        imports[package] |= {package_of(other) for other in graph.find_modules_directly_imported_by(module)} - {package}
    return {
        name: Package(modules[name], lines[name], tuple(sorted(map(short, imports[name])))) for name in sorted(modules)
    }


def rooms(place: str) -> tuple[int, int, int]:
    """Rooms of a package ("": those of the product), floors on which they stand, pairs of which one imports the other.

    A floor is 1 above the highest that its rooms import. No arrow runs up: that would be a cycle of rooms.

    Raises:
        RecursionError: there is a cycle.
    """
    graph, before = _graph(), f"{place}." if place else ""
    there = {
        module: before + module.removeprefix(before).partition(".")[0]
        for module in graph.modules
        if module.startswith(before)
    }
    below: dict[str, set[str]] = {room: set() for room in there.values()}
    for module, room in there.items():
        found = graph.find_modules_directly_imported_by(module)
        below[room] |= {there[other] for other in found if other in there} - {room}

    @functools.cache
    def floor(room: str) -> int:
        return 1 + max(map(floor, below[room]), default=0)

    return len(below), max(map(floor, below)), sum(map(len, below.values()))


def rooms_table(table: str) -> str:
    """The table of rooms with the code's figures of today in its last column, as CSV.

    Raises:
        KeyError: a place in it is none of PLACES.
    """
    header, *rows = csv.reader(table.splitlines())
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows((place, before, ", ".join(map(str, (*rooms(PLACES[place]), 0)))) for place, before, _ in rows)
    return text.getvalue()


def _lines(module: str) -> int:
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return len(file.read_text(encoding="utf-8").splitlines())


def table(packages: dict[str, Package]) -> str:
    """The table as CSV; lines are rounded."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for name, package in packages.items():
        imports = ", ".join(package.imports) or "none"
        writer.writerow((f"`{name}`", package.modules, _rounded(package.lines), imports))
    return text.getvalue()


def _rounded(lines: int) -> int:
    return max(ROUND_TO, round(lines / ROUND_TO) * ROUND_TO)


def written(text: str) -> dict[str, Package]:
    """What a table says.

    Raises:
        KeyError: it lacks a column.
        ValueError: a number is none.
    """
    return {
        row["package"].strip("`"): Package(
            int(row["modules"]),
            int(row["lines"]),
            () if row["imports"] == "none" else tuple(row["imports"].split(", ")),
        )
        for row in csv.DictReader(text.splitlines())
    }


def differences(table: dict[str, Package], code: dict[str, Package]) -> list[str]:
    """Where the table is no longer true, one sentence each."""
    found = [f"{name}: the table lacks it" for name in code.keys() - table.keys()]
    found += [f"{name}: no longer there" for name in table.keys() - code.keys()]
    for name in table.keys() & code.keys():
        said, real = table[name], code[name]
        if said.imports != real.imports:
            changed = set(said.imports) ^ set(real.imports)
            found.append(f"{name}: its imports differ from the table's in {', '.join(sorted(changed))}")
        if _drifted(said.modules, real.modules, SMALL) or _drifted(said.lines, real.lines, ROUND_TO):
            found.append(f"{name}: {real.modules} modules and {real.lines} lines, the table says other numbers")
    return sorted(found)


def _drifted(said: int, real: int, small: int) -> bool:
    return abs(said - real) > max(small, DRIFT * said)
