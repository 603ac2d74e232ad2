"""torch.compile's own code generator trains as the plain model does; it needs a C++ compiler."""

import shutil

import pytest
import torch
import torch._inductor.config

from tests.training.benchmarks.trainer import reference
from tests.training.benchmarks.trainer.tiny import benchmark_of, config_of

STEPS = 3


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor makes C++ and there is no g++")
def test_inductor_trains_as_the_plain_model_does(monkeypatch: pytest.MonkeyPatch) -> None:
    # Inductor would find out by six compilations which vector instructions there are: a third of this test's time.
    monkeypatch.setattr(torch._inductor.config.cpp, "vec_isa_ok", True)
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
