"""Every block compiles as one graph, once; torch.compile's own code generator trains as the plain model does."""

import shutil

import pytest
import torch

from tests.training.benchmarks.driver.training import reference
from tests.training.benchmarks.driver.training.tiny import MODELS, benchmark_of, config_of

STEPS = 3


@pytest.mark.parametrize("name", MODELS)
def test_a_block_is_one_graph_that_is_compiled_once(name: str) -> None:
    """LLaMA's rotary embedding and all else: without a break of the graph, the same from one step to the next."""
    torch.compiler.reset()
    config = config_of(name)
    torch.manual_seed(0)
    plain, compiled = (benchmark_of(name).build_model(config).train() for _ in range(2))
    compiled.load_state_dict(plain.state_dict())
    for model in (plain, compiled):
        model.make_constants(torch.device("cpu"))
    graphs = []

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    for block in compiled.blocks():
        block.compile(fullgraph=True, backend=backend)
    samples = benchmark_of(name).synthetic_data(config).train
    for step in range(3):
        batch = samples[[step, step + 5, step + 9]]
        losses = [model(batch)["loss"] for model in (plain, compiled)]
        torch.testing.assert_close(losses[1], losses[0])
    assert len(graphs) == 1, "both blocks of the model in all steps share one"


@pytest.mark.nightly  # by day a layout of test_parity.py trains compiled by a backend that makes no code
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor makes C++ and there is no g++")
def test_inductor_trains_as_the_plain_model_does(monkeypatch: pytest.MonkeyPatch) -> None:
    # Inductor would find out by six compilations which vector instructions there are: a third of this test's time.
    monkeypatch.setattr("torch._inductor.config.cpp.vec_isa_ok", True)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    config = config_of("bert", num_layers=1)
    torch.manual_seed(0)
    start = benchmark_of("bert").build_model(config).state_dict()
    plain, _ = reference.train("bert", config, start, STEPS)
    net = reference.model_with("bert", config, start).train()
    for block in net.blocks():
        block.compile(backend="inductor")
    before = torch._dynamo.utils.counters["inductor"].copy()
    compiled = reference.train_net(net, lambda batch: net(batch)["loss"], "bert", config, STEPS)
    assert torch._dynamo.utils.counters["inductor"] != before, "it was compiled at all"
    assert compiled == pytest.approx(plain, abs=1e-5, rel=0)
