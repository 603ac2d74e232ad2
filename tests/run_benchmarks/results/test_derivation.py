"""FINISHED against its own log: lies through a whole run of the controller, and random trainings that do not lie."""

import random
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.claims import LoggedRun, LoggedStep
from protocol.perflog import Event
from run_benchmarks.results.derivation import derive
from run_benchmarks.results.rank_logs import RankLog, StepLines
from run_benchmarks.results.records import RoundRecord
from tests import product
from tests.run_benchmarks.commands.test_verification import edit, seal_anew
from tests.tiers import samples
from training.benchmarks.driver.training.measuring.claims import TrainingClaims
from training.benchmarks.llama.pytorch.config import Config

SETTINGS: dict[str, Any] = {
    "data": "synthetic",
    "train_samples": 4096,
    "train_batch_size": 4,
    "max_steps": 300,
    "eval_interval_samples": 160,
    "warmup_steps": 5,  # on a busy machine the step time may not settle
}
TINY: dict[str, Any] = {
    "data": "synthetic",
    "num_layers": 1,
    "hidden_size": 4,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "ffn_hidden_size": 4,
    "vocab_size": 100,
    "seq_length": 16,
}
# Embedding and head, norms, and the matrices of attention and of the gated feed-forward layer.
PARAMETERS = 2 * 100 * 4 + 3 * 4 + 4 * 4 * 4 + 3 * 4 * 4
# Both numbers of each lie, as regular expressions.
LIES = {
    "none": [],
    "steps": ["global_steps is 300 by FINISHED, 20 by its last STEP_END", "it ended after step 20 of 300"],
    "clock": [r"raw_train_time is 0\.\d+ by FINISHED, \d\.\d+ to \d\.\d+ by the times of its log's lines"],
    "other clock": [r"the training took \d\.\d+ s by the lines of rank 0, \d\d\.\d+ s by those of rank 1"],
    "whole clock": [r"the training took 0\.\d+ s by the lines of rank 1, \d+\.\d+ s by the clock of its launcher"],
    "figures": [
        "parameters is 7000000000 by FINISHED, 100 by its settings",
        r"final_loss is 0\.01 by FINISHED, 0\.23\d* in its last EVALUATE",
        "converged is True by FINISHED, False by its last EVALUATE and the targets",
        r"throughput\(ips\)_raw is 99999 by FINISHED, \d+\.?\d* to \d+\.?\d* by its own steps and seconds",
        r"throughput\(ips\)_steady is 0\.0\d+ by FINISHED, 0\.[1-9]\d+ to \d\.\d+ by the times of its log's lines",
    ],
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run with a case for each lie, of a project that has the training that may lie."""
    folder = product.copy(tmp_path_factory.mktemp("derivation"))
    product.copy_folder(Path(__file__).parent / "liar", folder / "training/benchmarks/liar")
    config = folder / "vendors/cpu/liar-pytorch/config/config_CPU.py"
    config.parent.mkdir(parents=True)
    config.write_text("".join(f"{key} = {value!r}\n" for key, value in SETTINGS.items()))
    case = {"model": "liar", "framework": "pytorch", "config": "config_CPU", "nproc": 2}
    conf: dict[str, Any] = {
        "VENDOR": "cpu",
        "RUNTIME": "process",
        "CASES": [*map(name_of, LIES)],
        "FLAGPERF_PATH_HOST": str(folder / "deploy"),
        "FLAGPERF_LOG_PATH_HOST": str(folder / "logs"),
    }
    for lie in LIES:
        target = {"target_loss": 0.001} if lie == "figures" else {}
        slow = {"max_steps": 80, "pause": 0.1} if lie == "whole clock" else {}
        conf[name_of(lie)] = case | {"overrides": {"lie": lie, **target, **slow}}
    (folder / "test_conf.py").write_text("".join(f"{key} = {value!r}\n" for key, value in conf.items()))
    (folder / "cluster_conf.py").write_text('HOSTS = ["localhost"]\n')
    argv = ["run_benchmarks/run.py", "--cluster-conf", "cluster_conf.py", "--test-conf", "test_conf.py"]
    done = subprocess.run([sys.executable, *argv], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    return max((folder / "logs").glob("run*"))


def round_of(result: Path, lie: str) -> Path:
    return result / name_of(lie) / "round1/round.json"


def name_of(lie: str) -> str:
    return lie.upper().replace(" ", "_")


@pytest.mark.parametrize("lie", LIES)
def test_what_the_log_does_not_bear_out_fails_with_both_numbers(lie: str, result: Path) -> None:
    record = RoundRecord.model_validate_json(round_of(result, lie).read_bytes())
    if lie == "none":
        assert (record.verdict, record.reason, record.warnings) == ("pass", "all ranks finished", [])
        return
    assert record.verdict == "fail" and record.reason.startswith("rank 0: FINISHED contradicts its log: ")
    assert record.first_failure is not None and record.first_failure.rank == 0
    for expected in LIES[lie]:
        assert any(re.search(expected, sentence) for sentence in record.first_failure.evidence), record.first_failure


def verified(result: Path, folder: Path) -> str:
    """What `verify` of the run's own project says of it where it lies in `folder`."""
    argv = [sys.executable, "run_benchmarks/run.py", "verify", str(folder)]
    done = subprocess.run(argv, cwd=result.parents[1], capture_output=True, text=True, timeout=200)
    return " ".join((done.stdout + done.stderr).split())


def test_verify_derives_it_again(result: Path, tmp_path: Path) -> None:
    assert "intact" in verified(result, result)
    forged = shutil.copytree(result, tmp_path / result.name, symlinks=True)

    def passes(record: dict[str, Any]) -> None:
        record |= {"verdict": "pass", "reason": "all ranks finished", "first_failure": None}

    def all_pass(record: dict[str, Any]) -> None:
        record |= {"verdict": "pass", "exit_code": 0}
        for case in record["cases"]:
            case |= {"verdict": "pass", "rounds": ["pass"]}

    for lie in LIES:
        edit(round_of(forged, lie), passes)
    edit(forged / "run.json", all_pass)
    seal_anew(forged)
    problems = verified(result, forged)
    for lie in LIES:
        found = f"{name_of(lie)}/round1/round.json: verdict pass does not follow from the logs" in problems
        assert found == (lie != "none"), problems


class Loop:
    """A plain training of random steps, with its own sums: what a log of it shows, and what it rightly claims."""

    def __init__(self, seed: int, *, is_even: bool = False) -> None:
        generator = self.random = random.Random(seed)
        self.submitted: dict[str, Any] = {}
        steps, self.batch = generator.randint(1, 150), generator.randint(1, 8) * 2
        every, log_freq = generator.randint(1, 40), generator.choice([1, 3, 10])
        settings: dict[str, Any] = {"max_steps": steps, "log_freq": log_freq, "train_batch_size": self.batch // 2}
        settings |= {"eval_interval_samples": every * self.batch, "target_loss": 0.5, "peak_tflops": 2.0}
        self.config = Config.model_validate({**TINY, **settings})
        now = at_init = 1e6 + generator.random()
        lines: list[LoggedStep] = []
        times: list[float] = []
        excluded = 0.0
        now += generator.random() / 100
        trained_from = now
        self.times = {Event.SUBMIT_INFO: at_init - 2, Event.INIT_END: at_init, Event.TRAIN_START: now}
        for step in range(1, steps + 1):
            begin = now
            took = generator.lognormvariate(-4, 1) + generator.choice([0.0, 0.0, 0.3])
            took = generator.uniform(0.1, 0.11) if is_even else took
            times.append(took)
            now += took
            is_due = step % every == 0 or step == steps
            if is_due:
                pause = generator.random() / 5
                excluded += pause
                now += pause
            if step == 1 or step % log_freq == 0 or is_due:
                lines.append(LoggedStep(number=step, begin_ms=int(begin * 1000), end_ms=int(now * 1000)))
                self.last = {"no_eval_time": now - trained_from - excluded, "pure_compute_time": sum(times)}
        self.lines, raw = lines, now - trained_from
        self.share_of_evaluations = excluded / raw
        self.times |= {Event.TRAIN_END: now, Event.FINISHED: now + generator.random() / 100}
        samples, warmup = steps * self.batch, generator.randint(0, steps - 1)
        rate = (steps - warmup) * self.batch / sum(times[warmup:])
        self.steady = sorted(times[warmup:])
        self.finished: dict[str, Any] = {
            "global_steps": steps,
            "num_trained_samples": samples,
            "raw_train_time": raw,
            "train_time": raw,
            "train_no_eval_time": raw - excluded,
            "pure_training_computing_time": sum(times),
            "init_time": 2.5,
            "e2e_time": 2.5 + raw,
            "training_sequences_per_second": samples / raw,
            "throughput(ips)_raw": samples / raw,
            "throughput(ips)_no_eval": samples / (raw - excluded),
            "throughput(ips)_pure_compute": samples / sum(times),
            "warmup_steps": warmup,
            "warmup_time": sum(times[:warmup]),
            "steady_steps": steps - warmup,
            "throughput(ips)_steady": rate,
            "step_time_p50": statistics.median_low(self.steady),
            "step_time_p99": self.steady[-(len(self.steady) // 100) - 1],
            "tokens_per_sample": 16,
            "tokens_per_second_per_device": samples * 16 / (raw - excluded) / 2,
            "tokens_per_second_per_device_steady": rate * 16 / 2,
            "flops_per_sample": 900,
            "flops_per_sample_6n": 6 * PARAMETERS * 16,
            "parameters": PARAMETERS,
            "peak_memory_bytes": 30 * PARAMETERS,
            "peak_tflops": 2.0,
            "mfu": rate * 900 / 4e12,
            "mfu_6n": rate * 6 * PARAMETERS * 16 / 4e12,
            "converged": False,
            "targets": ["eval_loss <= 0.5"],
            "final_loss": 1.25,
        }

    def contradictions(self, **lies: Any) -> list[str]:
        """What is found where FINISHED says this instead."""
        log = LoggedRun(
            steps=self.lines,
            times_ms={event: int(seconds * 1000) for event, seconds in self.times.items()},
            values={
                Event.SUBMIT_INFO: self.submitted,
                Event.TRAIN_START: {"total_steps": self.config.max_steps},
                Event.STEP_END: self.last,
                Event.EVALUATE: {"global_steps": self.config.max_steps, "eval_loss": 1.25},
                Event.FINISHED: self.finished | lies,
            },
            world_size=2,
        )
        return [*TrainingClaims(self.config, log, "ips").contradictions()]


@pytest.mark.parametrize("seed", samples(25, 100))
def test_a_right_training_contradicts_nothing_and_each_wrong_number_is_found(seed: int) -> None:
    loop = Loop(seed)
    assert loop.contradictions() == []
    spans = ("raw_train_time", "train_time", "train_no_eval_time")
    long = {name for name in spans if loop.finished[name] > 0.2}
    assert [name for name in long if not loop.contradictions(**{name: loop.finished[name] / 2})] == []
    assert [name for name in long if not loop.contradictions(**{name: loop.finished[name] * 2})] == []
    apart = {"warmup_time", "warmup_steps", "init_time", "e2e_time", "converged", "targets", "step_time_p99"}
    apart |= {"peak_memory_bytes"}
    whole = {*loop.finished} - {*spans, *apart}
    wrong = {name: loop.finished[name] * loop.random.choice([2, 1.01]) + 1 for name in whole}
    assert [name for name in whole if not loop.contradictions(**{name: wrong[name]})] == []
    assert loop.contradictions(converged=True) and loop.contradictions(converged=None)


@pytest.mark.parametrize("seed", samples(15, 1000))
def test_percentiles_of_a_step_that_its_steady_seconds_do_not_allow_are_found(seed: int) -> None:
    """Of steps that differ by less than a tenth, half or twice of either, or of both, is no possible order."""
    loop = Loop(seed, is_even=True)
    assert loop.contradictions() == []
    p50, p99 = loop.finished["step_time_p50"], loop.finished["step_time_p99"]
    for lie in [(p50 / 2, p99), (2 * p50, p99), (p50, p99 / 2), (p50 / 2, p99 / 2), (2 * p50, 2 * p99)]:
        found = loop.contradictions(step_time_p50=lie[0], step_time_p99=lie[1])
        assert any(sentence.startswith("step_time_p") for sentence in found), lie


def test_targets_and_the_peak_of_a_device_are_those_of_the_settings_and_of_its_datasheet() -> None:
    loop = Loop(1)
    (said,) = loop.contradictions(targets=["eval_loss <= 9"])
    assert said == "targets are ['eval_loss <= 9'] by FINISHED, ['eval_loss <= 0.5'] by its settings"
    loop.config = loop.config.model_copy(update={"peak_tflops": None, "precision": "bf16"})
    loop.submitted = {"device_name": "NVIDIA H100 80GB HBM3"}
    factor = 989.4 / 2.0
    right = {"peak_tflops": 989.4} | {name: loop.finished[name] / factor for name in ("mfu", "mfu_6n")}
    assert loop.contradictions(**right) == []
    low = {"peak_tflops": 494.7} | {name: 2 * right[name] for name in ("mfu", "mfu_6n")}
    (said,) = loop.contradictions(**low)
    assert said.startswith("peak_tflops is 494.7 by FINISHED, 989.4"), said


def test_memory_is_that_of_the_weights_at_least_and_that_of_the_device_at_most() -> None:
    loop = Loop(1)
    (said,) = loop.contradictions(peak_memory_bytes=11 * PARAMETERS)
    assert said.startswith(f"peak_memory_bytes is {11 * PARAMETERS} by FINISHED, at least {12 * PARAMETERS} by its")
    loop.config = loop.config.model_copy(update={"strategy": "fsdp"})
    assert loop.contradictions(peak_memory_bytes=11 * PARAMETERS) == []
    assert loop.contradictions(peak_memory_bytes=5 * PARAMETERS) != []
    loop.submitted = {"device_name": "NVIDIA H100 80GB HBM3"}
    assert loop.contradictions(peak_memory_bytes=79 << 30) == []
    (said,) = loop.contradictions(peak_memory_bytes=81 << 30)
    assert re.search(r"is 86973087744 by FINISHED, \d+ to 8.58993e\+10 by .* and the memory of NVIDIA H100", said), said


def test_times_without_evaluations_that_are_too_short_in_every_line_are_found() -> None:
    """Half of the training is said to have been evaluations, all else fits."""
    loop = next(
        loop for loop in map(Loop, range(1000)) if loop.share_of_evaluations < 0.2 and loop.config.log_freq < 10
    )
    loop.last = {name: seconds / 2 for name, seconds in loop.last.items()}
    halved = {name: loop.finished[name] / 2 for name in ("train_no_eval_time", "pure_training_computing_time")}
    of_them = ("_no_eval", "_pure_compute", "per_device")
    doubled = {name: 2 * value for name, value in loop.finished.items() if name.endswith(of_them)}
    found = loop.contradictions(**halved, **doubled)
    assert any(sentence.startswith("train_no_eval_time") for sentence in found), found
    halved |= {"warmup_time": loop.finished["warmup_time"] / 2}
    doubled |= {name: 2 * loop.finished[name] for name in loop.finished if "steady" in name and name != "steady_steps"}
    doubled |= {name: 2 * loop.finished[name] for name in ("mfu", "mfu_6n")}
    found = loop.contradictions(**halved, **doubled)
    assert any("throughput(ips)_steady" in sentence for sentence in found), found
    assert any(sentence.startswith("warmup_time and the steady state") for sentence in found), found


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda loop: loop.lines.pop(0), "asks for a STEP_END of step 1,"),
        (lambda loop: loop.lines.append(loop.lines[0]), "do not rise"),
        (lambda loop: loop.lines.append(LoggedStep(number=1 << 62, begin_ms=1, end_ms=1)), "asks for a STEP_END of"),
        (lambda loop: loop.lines.clear(), "by its last STEP_END"),
    ],
)
def test_steps_that_are_missing_or_made_up(change: Any, sentence: str) -> None:
    loop = Loop(3)
    change(loop)
    assert any(sentence in found for found in loop.contradictions())


@pytest.mark.parametrize(
    ("settings", "is_whole", "said"),
    [
        ({}, False, "the log of rank 0 was cut"),
        ({"of_another_version": 1}, True, "settings of another version"),
    ],
)
def test_what_cannot_be_derived_is_said_and_accuses_nobody(settings: dict[str, Any], is_whole: bool, said: str) -> None:
    case = SimpleNamespace(
        name="ONE", model="llama", framework="pytorch", config={**TINY, "max_steps": 3, **settings}, nnodes=1, nproc=2
    )
    log = RankLog(rank=0, step_lines=StepLines())
    derived = derive(case, {0: log}, is_whole=is_whole)
    assert derived.contradictions == () and len(derived.unchecked) == 1 and said in derived.unchecked[0]
    assert derive(case, {0: RankLog(rank=0)}, is_whole=True).unchecked, "a log with more steps than are kept"


def test_a_log_that_no_training_writes_fails() -> None:
    case = SimpleNamespace(
        name="ONE", model="llama", framework="pytorch", config={**TINY, "max_steps": 3}, nnodes=1, nproc=2
    )
    log = RankLog(rank=0, step_lines=StepLines())
    (sentence,) = derive(case, {0: log}, is_whole=True).contradictions
    assert sentence.startswith("FINISHED cannot be derived from its log: ")
