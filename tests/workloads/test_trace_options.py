"""The job that `trace` makes of options is the one that `generate` makes of them, and nothing given is lost."""

from dataclasses import replace
from typing import Any

import pytest

from tests.workloads.test_framework_dialect import arguments
from workloads import options
from workloads.dialects.framework import presets
from workloads.job.parameters import DEEPSPEED_DEFAULTS
from workloads.library import ParameterError, WorkloadArgs
from workloads.trace import command


@pytest.mark.parametrize("name", presets.NAMES)
def test_trace_takes_a_model_for_what_generate_takes_it(name: str) -> None:
    ruled = options.resolve({}, name, "csv", "framework")
    traced = replace(arguments(command.job_of({"model_size": name})), model_name=name, global_batch=ruled.global_batch)
    assert traced.to_dict() == {**ruled.to_dict(), "ffn_hidden_size": ruled.ffn_size, **DEEPSPEED_DEFAULTS}


def test_trace_refuses_what_it_has_no_place_for() -> None:
    with pytest.raises(ParameterError) as caught:
        command.job_of({"epoch_num": 3, "pp_rank": 0, "aiob_enable": True, "use_flash_attn": True})
    assert [str(problem) for problem in caught.value.problems] == [
        "pp_rank is 0: a trace says --pp_stage",
        "epoch_num is 3: a trace says --iterations",
        "aiob_enable is True: a trace has no such parameter; leave it out",
    ]


def test_trace_takes_options_for_what_generate_takes_them() -> None:
    """What the two have by default is the same job, too: the width of a gated MLP, the ranks of latent attention."""
    given: dict[str, Any] = {
        "world_size": 4,
        "swiglu": True,
        "multi_latent_attention": True,
        "qk_nope_dim": 32,
        "hidden_size": 256,
    }
    job = command.job_of(dict(given))
    assert (job.ffn_size, job.q_lora_rank, job.qk_nope_dim) == (640, 1536, 32)
    given |= {"ffn_hidden_size": 640, "num_attention_heads": 2, **DEEPSPEED_DEFAULTS}
    ruled = WorkloadArgs(**given)
    assert arguments(job) == ruled
