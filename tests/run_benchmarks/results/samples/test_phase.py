"""Figures of the measured work alone: samples count by what of their time lies in it."""

from pathlib import Path

from run_benchmarks.results.samples.summary import summarize
from tests.run_benchmarks.results.samples.test_summary import device, line


def test_what_lies_outside_does_not_count_and_edges_in_part(tmp_path: Path) -> None:
    """Samples at 1, 2, ... 6 s, the work from 2.5 s to 4.5 s: half of the third, the fourth, half of the fifth."""
    path = tmp_path / "monitor.jsonl"
    cpu = [5.0, 5.0, 20.0, 100.0, 60.0, 99.0]
    joules = [0.0, 10.0, 110.0, 410.0, 610.0, 620.0]
    path.write_text(
        "".join(
            line("cpu", second * 1000, values={"utilization_percent": cpu[second - 1]})
            + line("mem", second * 1000, values={"used_percent": second, "used_bytes": second, "total_bytes": 1000})
            + line(
                "power",
                second * 1000,
                values={"meter": "rapl", "watts": 10.0 * second, "joules": joules[second - 1], "method": "counter"},
            )
            + line("accelerator", second * 1000, values={"devices": [device(0, energy_j=100.0 * second, power_w=50.0)]})
            for second in range(1, 7)
        )
    )
    summary = summarize(path, phase_ms=(2500, 4500))
    phase = summary.phase
    assert phase is not None and (phase.started_ms, phase.ended_ms) == (2500, 4500)
    assert phase.cpu_percent.mean == (0.5 * 20 + 100 + 0.5 * 60) / 2 and phase.cpu_percent.max == 100.0
    assert phase.cpu_percent.seconds == 2.0 and summary.cpu_percent.max == 100.0
    assert phase.memory_percent.max == 5 and phase.memory_used_bytes.mean == 4.0
    power = phase.power["rapl"]
    assert power.watts.mean == 40.0 and power.joules == 0.5 * 100 + 300 + 0.5 * 200
    assert summary.power["rapl"].joules == 620.0
    assert phase.devices[0].energy_j == 200.0 and phase.devices[0].power_w.mean == 50.0


def test_without_a_phase_there_are_no_figures_of_it_and_one_that_was_not_sampled_has_none(tmp_path: Path) -> None:
    path = tmp_path / "monitor.jsonl"
    path.write_text(line("cpu", 1000, values={"utilization_percent": 1.0}))
    assert summarize(path).phase is None
    phase = summarize(path, phase_ms=(2000, 3000)).phase
    assert phase is not None and phase.cpu_percent.mean is None and phase.power == {}
