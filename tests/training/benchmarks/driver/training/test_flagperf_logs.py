"""A reader of FlagPerf's logs finds every key where FlagPerf's own runs have it, and the same learning rates.

tests/data/flagperf holds PerfLog lines of FlagPerf's BERT, GLM and CPM, recorded on two gloo ranks with tiny sizes.
"""

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from protocol.perflog.record import PREFIX
from tests.training.benchmarks.driver.launch.launching import ALONE, ROOT
from tests.training.benchmarks.driver.training.tiny import MODELS, benchmark_of, config_of
from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.driver.training.settings.schedule import learning_rate

# FlagPerf's settings of these runs, by our names.
RATES: dict[str, dict[str, Any]] = {
    "cpm": {"lr_schedule": "flagperf_cpm", "learning_rate": 2e-3, "warmup": 0.1, "max_steps": 30, "min_lr_ratio": 0.0},
    "glm": {"lr_schedule": "flagperf_glm", "learning_rate": 2e-3, "warmup": 0.05, "lr_decay_steps": 400},
}
TARGETS = {"bert": "target_mlm_accuracy", "glm": "target_accuracy", "cpm": "target_loss"}
UNMET = {"bert": 1.0, "glm": 1.0, "cpm": 1e-3}
Places = dict[str, dict[str, type]]


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix(PREFIX)) for line in text.splitlines() if line.startswith(PREFIX)]


def _theirs(model: str) -> list[dict[str, Any]]:
    path = ROOT / "tests" / "data" / "flagperf" / f"{model}.rank0.out.log"
    return _lines(path.read_text(encoding="utf-8"))


def _places(lines: Iterable[dict[str, Any]]) -> Places:
    """Of each event the places of its keys (value.loss, step, metadata.rank ...) and the types that stand there."""
    found: Places = {}
    for line in lines:
        here = found.setdefault(line["event"], {})
        for key, value in line.items():
            inner = value.items() if isinstance(value, dict) else ()
            here |= {f"{key}.{name}": type(each) for name, each in inner} or {key: type(value)}
    return found


@pytest.fixture
def ours(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> list[dict[str, Any]]:
    """The lines of a rank that trains the model of the parameter, evaluated each second step; four make an epoch."""
    model = request.param
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    chosen = {
        "max_steps": 8,
        "log_freq": 1,
        "eval_interval_samples": 16,
        "train_samples": 32,
        TARGETS[model]: UNMET[model],
    }
    if model == "cpm":
        chosen["target_embedding_average"] = 0.9
    settings = config_of(model).model_dump() | chosen
    path = tmp_path / "config.py"
    path.write_text("".join(f"{key} = {value!r}\n" for key, value in settings.items()))
    with pytest.raises(SystemExit, match="target missed"):
        run_training(benchmark_of(model), MODELS[model][1], ["--config_file", str(path), "--vendor", "cpu"])
    return _lines(capsys.readouterr().out)


@pytest.mark.parametrize(("ours", "model"), [(name, name) for name in TARGETS], indirect=["ours"])
def test_every_key_of_flagperfs_log_stands_in_ours_at_the_same_place(ours: list[dict[str, Any]], model: str) -> None:
    theirs, mine = _places(_theirs(model)), _places(ours)
    assert theirs["STEP_BEGIN"]["step"] is int and theirs["INIT_END"]["other"] is str, "what is compared is there"
    missing = [
        f"{event}: {place}" for event, places in theirs.items() for place in places if place not in mine.get(event, {})
    ]
    assert missing == []
    others = [
        f"{event}: {place} is {mine[event][place]}, FlagPerf's is {kind}"
        for event, places in theirs.items()
        for place, kind in places.items()
        if mine[event][place] is not kind
    ]
    assert others == []
    assert next(line["other"] for line in ours if line["event"] == "INIT_END") == "Finish initialization"
    follow = [set(pairwise(line["event"] for line in lines)) for lines in (_theirs(model), ours)]
    assert follow[0] - follow[1] == set(), "an event follows another where it does in FlagPerf's log"


@pytest.mark.parametrize("model", RATES)
def test_flagperf_logged_the_rates_that_our_schedule_gives(model: str) -> None:
    config = config_of(model, **RATES[model])
    logged = {line["value"]["global_steps"]: line["value"] for line in _theirs(model) if line["event"] == "STEP_END"}
    assert len(logged) >= 5
    for step, value in logged.items():
        assert learning_rate(config, step, 400) == pytest.approx(value["learning_rate"], rel=1e-12), step


def test_the_published_run_of_cpm_logged_the_rate_that_our_schedule_gives() -> None:
    """FlagPerf's README shows the end of CPM on 8 x A100: step 3397, learning_rate 0.000175375."""
    config = config_of(
        "cpm", lr_schedule="flagperf_cpm", learning_rate=5e-4, warmup=0.2, max_steps=4000, min_lr_ratio=0.0
    )
    assert learning_rate(config, 3397, 4000) == pytest.approx(0.000175375, rel=1e-12)
