"""The spellings of collectives are those of AICB's files, of Chakra's schema, of SimAI's names and of flows."""

from chakra.schema.protobuf import et_def_pb2 as schema

from simulation.flows.names import CELLS
from workloads.formats.chakra.schema import COLLECTIVES, TYPES
from workloads.formats.simai_text import KNOWN, WORDS
from workloads.rows.collectives import SIMULATED
from workloads.rows.ops import CommType


def test_each_spelling_is_one_of_its_format() -> None:
    others = {CommType.isend, CommType.irecv, CommType.computation, CommType.epoch_end}
    assert {*COLLECTIVES} == {*CommType} - others and {*COLLECTIVES.values()} <= {*schema.CollectiveCommType.keys()}
    assert TYPES["ALL_GATHER"] is CommType.all_gather and TYPES["REDUCE_SCATTER"] is CommType.reduce_scatter
    assert WORDS["all_gather_into_tensor"] == KNOWN["all_gather"] == "ALLGATHER" and "reduce" not in WORDS
    assert CELLS["ReduceScatter"] == "REDUCESCATTER" and [*CELLS][3:] == ["AllToAll", "Broadcast"]
    assert len(CELLS) == len(SIMULATED)
