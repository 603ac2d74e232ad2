"""A SimAI text is judged once: what loads rows and what streams them take and refuse the same files."""

import lzma
import warnings
from pathlib import Path

import pytest

from common.errors import InputNote, InputProblems
from simulation.analytical.workload import TextWorkload
from workloads.formats.simai import SimaiWorkload
from workloads.formats.simai_text import MICRO, POLICY, parse_row, split_row
from workloads.job.errors import WorkloadFileError
from workloads.library import ParameterError, WorkloadArgs, simai

DATA = Path(__file__).resolve().parents[2] / "data"
FOLDERS = ("aicb/simai", "aicb/shipped", "aicb/unit", "simulation/ns3/workload")
HELD = [path for folder in FOLDERS for path in sorted((DATA / folder).glob("*.txt*"))]
GOOD = (
    f"{POLICY} model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 2 ga: 1 all_gpus: 8 checkpoints: 0 "
    "checkpoint_initiates: 0 pp_comm: 0\n2\n"
    "layer0\t-1\t100\tALLREDUCE\t1024\t200\tNONE\t0\t100\tALLGATHER\t64\t100\n"
    "layer1\t-1\t100\tNONE\t0\t200\tNONE\t0\t100\tREDUCESCATTER_DP_EP\t64\t100\n"
)
MICRO_TEXT = f"{MICRO}\n1\nx -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 1024 1\n"
# What is replaced by what in GOOD; whether it is taken; whether SimAI's way of reading takes it.
VARIANTS = (
    ("", "", True, True),
    ("\n", "\r\n", True, True),
    ("\t", "  ", True, True),
    ("\n2\n", "\n3\n", False, False),
    ("\n2\n", "\n1\n", False, True),
    ("\n2\n", "\n", False, False),
    ("\n2\n", "\n+2\n", False, False),
    ("\n2\n", "\n٢\n", False, False),
    ("ALLREDUCE", "allreduce", False, True),
    ("ALLREDUCE", "ALLREDUCE_XX", False, True),
    ("ALLREDUCE", "BROADCAST_EP_TP", True, True),
    ("ALLREDUCE", "None", True, True),
    ("1024", "-1024", False, False),
    ("1024", "1024.5", False, True),
    ("1024", "1e3", False, True),
    ("1024", "1_024", False, True),
    ("1024", "9" * 25, False, False),
    ("\t64\t100\n", "\t64\n", False, False),
    ("\t64\t100\n", "\t64\t100\t1\n", False, False),
    ("\t64\t100\n", "\t64\tx\n", False, True),
    ("layer1", "\nlayer1", False, True),
    ("layer1", "# hi\nlayer1", False, False),
    ("layer1", "läyer1", True, True),
    ("layer1", "la\0yer1", False, True),
    ("layer1", "\x1b[31mred", False, True),
    ("model_parallel_NPU_group: 2 ", "", False, False),
    ("group: 2", "group: 0", False, False),
    ("group: 2", "group: 2.0", False, True),
    ("ep: 1", "ep 1", True, True),
    ("ep: 1 ", "", False, True),
    ("ep: 1", "ep: 1 ep: 2", False, True),
    ("pp_comm: 0", "pp_comm: 8.5", True, True),
    ("pp_comm: 0", "pp_comm: 2147483648", False, False),
    (" pp_comm: 0", "", True, True),
    ("pp_comm: 0", "pp_comm: 0 foo: 3", False, False),
)


def streamed(path: Path, *, lenient: bool = False) -> list[object]:
    """Names and rows as the simulation streams them."""
    text = TextWorkload(path, lenient=lenient)
    try:
        pairs = [split_row(line) for block in text.blocks() for line in block]
        found: list[object] = [(name.decode(), parse_row(rest, lenient=lenient)) for name, rest in pairs]
    except ValueError as error:
        raise InputProblems([]) from error
    text.check_rows(len(found))
    return found


def loaded(path: Path) -> list[object]:
    """The same as the workloads' own commands read them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputNote)
        rows = list(SimaiWorkload.load(path))
    cells = [split_row(row.to_text().encode()) for row in rows]
    return [(name.decode(), parse_row(rest)) for name, rest in cells]


@pytest.mark.parametrize("path", HELD, ids=lambda path: path.name)
def test_every_held_text_is_the_same_to_both(path: Path, tmp_path: Path) -> None:
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    (tmp_path / "w.txt").write_bytes(data)
    assert len(HELD) > 50 and loaded(tmp_path / "w.txt") == streamed(tmp_path / "w.txt")


@pytest.mark.parametrize("base", [GOOD, MICRO_TEXT], ids=["model", "micro"])
@pytest.mark.parametrize(("old", "new", "strict", "lenient"), VARIANTS)
def test_both_take_and_refuse_the_same(
    base: str, old: str, new: str, strict: bool, lenient: bool, tmp_path: Path
) -> None:
    if old not in base:
        return
    path = tmp_path / "w.txt"
    path.write_bytes((base.replace(old, new) if old else base).encode())
    outcomes: list[list[object] | None] = []
    for read in (loaded, streamed):
        try:
            outcomes.append(read(path))
        except (WorkloadFileError, InputProblems):
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]
    if base is GOOD:
        assert (outcomes[0] is not None) == strict
        try:
            taken = bool(streamed(path, lenient=True))
        except InputProblems:
            taken = False
        assert taken == lenient


@pytest.mark.parametrize("dialect", ["aicb", "framework"])
@pytest.mark.parametrize("values", [{"frame": "Megatron"}, {"pipeline_model_parallel": 2}, {"frame": "DeepSpeed"}])
def test_every_generated_text_is_the_same_to_both(values: dict[str, object], dialect: str, tmp_path: Path) -> None:
    sizes = {"world_size": 8, "num_layers": 4, "global_batch": 16, "hidden_size": 256, "num_attention_heads": 8}
    try:
        made = simai(WorkloadArgs(**(sizes | values)), dialect=dialect)  # type: ignore[arg-type]
    except ParameterError:
        pytest.skip("the dialect has no such text")
    made.save(tmp_path / "w.txt")
    again = loaded(tmp_path / "w.txt")
    assert again == streamed(tmp_path / "w.txt") and len(again) == len(made)
