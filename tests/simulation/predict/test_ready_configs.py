"""Configurations of a layout: what the parsers of Megatron-LM, torchtitan and our own cases take, and what they say.

tests/data/simulation/framework_options.json records the options of the first two.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from itertools import chain
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from protocol.case_config import load_case_config
from simulation.predict.iteration import predict
from simulation.predict.machine import machines
from simulation.predict.ready_configs import configs
from tests.simulation.predict.test_counts import job
from training.benchmarks.aicb.pytorch.config import Config
from workloads.dialects.framework.model import stage_layers
from workloads.job.training_job import TrainingJob
from workloads.job.weights import stage_sizes

OPTIONS = json.loads((Path(__file__).parents[2] / "data/simulation/framework_options.json").read_text(encoding="utf-8"))
LAYOUTS: list[tuple[str, dict[str, int | str]]] = [
    ("llama3_70b", {"gpus": 64, "tp": 8, "pp": 4, "vpp": 5, "gbs": 64}),
    ("llama3_8b", {"gpus": 16, "fsdp": 8, "gbs": 32, "recompute": "selective"}),
    ("llama3_8b", {"gpus": 16, "fsdp": 1, "gbs": 32, "recompute": "full"}),
    ("llama3_8b", {"gpus": 16, "tp": 2, "gbs": 32, "sliding_window": 1024, "full_attention_every": 4}),
    ("llama3_8b", {"gpus": 16, "fsdp": 1, "gbs": 32, "sliding_window": 1024, "full_attention_every": 4}),
    ("llama3_8b", {"gpus": 16, "cp": 2, "gbs": 32, "sliding_window": 8192}),
    ("llama3_8b", {"gpus": 16, "cp": 2, "gbs": 32, "cp_comm": "a2a"}),
    ("llama3_8b", {"gpus": 16, "cp": 2, "gbs": 32, "cp_comm": "allgather"}),
    ("mixtral_8x7b", {"gpus": 32, "tp": 2, "ep": 8, "gbs": 32}),
    ("mixtral_8x7b", {"gpus": 16, "tp": 4, "ep": 8, "gbs": 32}),
    ("llama3_8b", {"gpus": 16, "tp": 2, "gbs": 32, "distributed_optimizer": 0}),
    ("llama3_8b", {"gpus": 16, "gbs": 32, "distributed_optimizer": 0, "fsdp": 1}),
    ("llama3_8b", {"gpus": 12, "pp": 3, "gbs": 24, "precision": "fp8"}),
    ("llama3_8b", {"gpus": 16, "tp": 2, "gbs": 32, "precision": "fp8 delayed"}),
    ("llama3_8b", {"gpus": 16, "tp": 2, "gbs": 32, "precision": "fp8 rowwise"}),
    ("llama3_8b", {"gpus": 16, "fsdp": 1, "gbs": 32, "precision": "fp8 mx", "framework": "Megatron"}),
    ("llama3_8b", {"gpus": 16, "fsdp": 1, "gbs": 32, "precision": "fp8 mx"}),
    ("llama3_8b", {"gpus": 16, "fsdp": 4, "gbs": 32, "framework": "Megatron"}),
    ("deepseek_v3", {"gpus": 256, "pp": 4, "ep": 64, "gbs": 256, "fsdp": 1, "framework": "Megatron"}),
    ("deepseek_v3", {"gpus": 64, "tp": 1, "pp": 1, "ep": 64, "gbs": 64}),
    ("deepseek_v3", {"gpus": 256, "pp": 4, "ep": 64, "gbs": 256}),
    ("deepseek_v3", {"gpus": 256, "pp": 4, "vpp": 4, "ep": 64, "gbs": 256}),
    ("mixtral_8x7b", {"gpus": 32, "tp": 2, "ep": 8, "gbs": 32, "fsdp": 1}),
    ("llama3_8b", {"gpus": 32, "tp": 2, "gbs": 32, "fsdp": 1}),
    ("llama3_8b", {"gpus": 32, "tp": 2, "pp": 2, "cp": 2, "gbs": 32, "fsdp": 1}),
]
every_layout = pytest.mark.parametrize(("model", "layout"), LAYOUTS)


def files_of(its: TrainingJob) -> dict[str, str]:
    return {each.name: each.text for each in configs(predict(its, machines()["H100"]))}


@every_layout
def test_our_case_is_taken_by_its_own_loader_and_says_the_same(
    model: str, layout: dict[str, int | str], tmp_path: Path
) -> None:
    its = job(model, **layout)
    text = files_of(its).get("config_layout.py")
    other_stages, other_exchange = its.vpp > 1 and its.layers % (its.pp * its.vpp), its.cp_comm == "allgather"
    if other_stages or other_exchange or (its.fsdp and (its.pp > 1 or its.experts)):
        assert text is None
        return
    assert text is not None
    (tmp_path / "config_layout.py").write_text(text)
    case = load_case_config(Config, tmp_path / "config_layout.py", {})
    nproc = 6 if its.gpus == 12 else 8
    assert case.refusal(nnodes=its.gpus // nproc, nproc=nproc) is None
    told = case.parameters(its.gpus)
    assert (told.tensor_model_parallel_size, told.pipeline_model_parallel) == (its.tp, its.pp)
    assert told.data_parallel_size == its.dp and (not its.experts or told.expert_tensor_parallel_size == 1)
    if its.pp > 1:
        ours = [sum(stage_sizes(its)[stage :: its.pp]) for stage in range(its.pp)]
        assert stage_layers(told) == ours
    scaled = {"rowwise": "tensorwise"}.get(its.scaling, its.scaling)
    assert told.fp8_recipe == (scaled if its.precision == "fp8" and not its.fsdp else "none")
    assert told.cp_comm_type == its.cp_comm
    window = its.window if its.window < its.seq else 0
    assert (told.sliding_window or 0, told.full_attention_every) == (window, its.full_every)


def megatron_parser() -> argparse.ArgumentParser:
    known, parser = OPTIONS["megatron"], argparse.ArgumentParser(allow_abbrev=False)
    for name in known["int"]:
        parser.add_argument(name, type=int, default=None if name == "--expert-tensor-parallel-size" else 1)
    for name in known["text"]:
        parser.add_argument(name)
    for name in known["flag"]:
        parser.add_argument(name, action="store_true")
    for name, choices in known["choice"].items():
        parser.add_argument(name, choices=choices)
    return parser


def layers_of_text(text: str) -> list[int]:
    """Layers of each part of a --pipeline-model-parallel-layout."""
    assert text[0] == "E" and text[-1] == "L"
    return [sum(int(count or 1) for count in re.findall(r"t(?:\*(\d+))?", part)) for part in text.split("|")]


@every_layout
def test_megatron_takes_its_arguments_and_they_divide_the_job_as_predicted(
    model: str, layout: dict[str, int | str]
) -> None:
    its = job(model, **layout)
    script = files_of(its).get("megatron.sh")
    if its.fsdp not in (0, its.dp * its.cp) or (its.of_torch and its.pp * its.ep > 1):
        assert script is None
        return
    assert script is not None
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
    words = shlex.split(script.partition("exec ")[2].replace("\\\n", " "))
    start, rest = words[: words.index("pretrain_gpt.py")], words[words.index("pretrain_gpt.py") + 1 : -1]
    assert int(start[start.index("--nnodes") + 1]) * int(start[start.index("--nproc-per-node") + 1]) == its.gpus
    told = megatron_parser().parse_args(rest)
    sizes = (told.tensor_model_parallel_size, told.pipeline_model_parallel_size, told.context_parallel_size)
    assert sizes == (its.tp, its.pp, its.cp) and told.expert_model_parallel_size == its.ep
    # Where it is not said, Megatron-core's initialize_model_parallel divides experts over tensor-parallel ranks.
    etp = told.expert_tensor_parallel_size or its.tp
    assert not its.experts or (etp == 1 and its.gpus % (etp * its.ep * its.pp) == 0)
    assert told.global_batch_size == told.micro_batch_size * its.micro_batches * its.dp
    assert (told.cp_comm_type or "p2p") == its.cp_comm
    # What validate_args of Megatron-LM asks for.
    if told.pipeline_model_parallel_layout:
        parts = layers_of_text(told.pipeline_model_parallel_layout)
        assert told.num_virtual_stages_per_pipeline_rank == 1
        assert (len(parts), sum(parts)) == (its.pp * its.vpp, its.layers)
    else:
        assert told.num_virtual_stages_per_pipeline_rank == its.vpp and its.layers % (its.pp * its.vpp) == 0
    assert (told.use_torch_fsdp2, told.use_megatron_fsdp) == (its.of_torch, its.megatron and bool(its.fsdp))
    assert told.use_distributed_optimizer == (bool(its.distributed_optimizer) and not its.of_torch)
    if told.use_megatron_fsdp:
        assert (told.data_parallel_sharding_strategy, told.ckpt_format) == ("optim_grads_params", "fsdp_dtensor")
    # Megatron-LM's own default is delayed scaling, torch's products are predicted with one scale for a tensor.
    scaled = "tensorwise" if its.of_torch or its.scaling == "rowwise" else its.scaling
    assert told.fp8_recipe == (scaled if its.precision == "fp8" else None)
    if told.use_torch_fsdp2:
        assert told.no_gradient_accumulation_fusion and told.untie_embeddings_and_output_weights
    one_queue = "CUDA_DEVICE_MAX_CONNECTIONS=1" in script
    assert one_queue == (its.tp * its.cp > 1 and not its.fsdp)
    assert told.overlap_grad_reduce or not told.overlap_param_gather


@pytest.mark.parametrize(
    "more",
    [{"pp": 2, "gbs": 32}, {"fsdp": 4, "gbs": 32}, {"tied_embeddings": 1, "gbs": 32},
     {"fsdp": 0, "cp": 2, "gbs": 32, "cp_comm": "a2a+p2p"}],
    ids=("pp", "hsdp", "tied", "hierarchy"),
)  # fmt: skip
def test_megatron_gets_no_arguments_for_what_it_refuses(more: dict[str, int | str]) -> None:
    assert "megatron.sh" not in files_of(job("llama3_8b", **{"gpus": 16, "fsdp": 1, **more}))


def test_torchtitan_gets_no_settings_for_experts_that_it_would_divide_over_tensor_parallel_ranks() -> None:
    layout = {"gpus": 16, "tp": 2, "gbs": 32, "fsdp": 1}
    assert "torchtitan_layout.py" not in files_of(job("mixtral_8x7b", **layout))
    assert "torchtitan_layout.py" in files_of(job("mixtral_8x7b", **layout, ep=2))


def section(name: str) -> object:
    """A section of torchtitan's configuration that takes its own fields alone."""
    return type(name, (), {"__slots__": OPTIONS["torchtitan"][name]})()


@every_layout
def test_torchtitan_takes_its_configuration_and_it_divides_the_job_as_predicted(
    model: str, layout: dict[str, int | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    its, known = job(model, **layout), OPTIONS["torchtitan"]
    own = SimpleNamespace(**{name: section(name) for name in known["sections"]})
    for name in ("torchtitan", "torchtitan.distributed", "torchtitan.models", "torchtitan.models.llama3"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "torchtitan.models.deepseek_v3", ModuleType("torchtitan.models.deepseek_v3"))
    ways = ModuleType("torchtitan.distributed.activation_checkpoint")
    for way in known["activation_checkpoint"]:
        setattr(ways, way, SimpleNamespace(Config=lambda way=way: way))
    monkeypatch.setitem(sys.modules, ways.__name__, ways)
    for name, functions in known["models"].items():
        registry = ModuleType(f"torchtitan.models.{name}.config_registry")
        for function in functions:
            setattr(registry, function, lambda: own)
        monkeypatch.setitem(sys.modules, registry.__name__, registry)
    made: dict[str, object] = {}
    exec(files_of(its)["torchtitan_layout.py"], made)
    assert ("layout" in made) == (model != "mixtral_8x7b")
    told = made["layout"]() if "layout" in made else made["with_layout"](own)  # type: ignore[operator]
    at = told.parallelism
    shards, copies = at.data_parallel_shard_degree, at.data_parallel_replicate_degree
    assert shards * copies * its.tp * its.pp * its.cp == its.gpus
    assert (shards > 1) == bool(its.fsdp or its.distributed_optimizer)
    assert told.activation_checkpoint == {"none": None, "full": "FullAC"}.get(its.recompute, "SelectiveAC")
    passes = told.training.global_batch_size // (told.training.local_batch_size * shards * copies)
    if its.pp == 1:
        assert (passes, told.training.local_batch_size) == (its.micro_batches, its.mbs)
        return
    assert passes == 1
    assert told.training.local_batch_size == at.pipeline_parallel_microbatch_size * its.micro_batches
    parts = at.module_fqns_per_model_part
    assert len(parts) == its.pp * its.vpp
    assert [*chain(*parts)] == ["tok_embeddings", *(f"layers.{each}" for each in range(its.layers)), "norm", "lm_head"]
    assert (at.pipeline_parallel_schedule == "Interleaved1F1B") == (its.vpp > 1)
