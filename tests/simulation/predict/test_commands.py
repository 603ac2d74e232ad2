"""`predict` and `sweep` as a user calls them: files, options, mistakes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from simulation import cli
from simulation.predict.command import AICB_NAMES, ROW_OPTIONS
from tests.simulation.predict.calling import asked
from workloads.cli import main as workloads

MODEL = ("predict", "--model", "llama3_8b", "--gpu", "H100", "--gpus", "8")


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(list(words)) == 2
    assert list(Path().iterdir()) == [] or "rows.csv" in {path.name for path in Path().iterdir()}
    return capsys.readouterr().err


def rows_file(*lines: str) -> Path:
    path = Path("rows.csv")
    path.write_text("\n".join(("name,gpu,gpus,hidden,layers,heads,vocab,seq,tp,pp,measured_ms", *lines)) + "\n")
    return path


def test_a_model_gets_time_memory_and_what_simple_rules_would_say(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, *MODEL, "--tp", "2", "--gbs", "16")
    assert isinstance(found["predicted_ms"], float) and found["fits"] is True
    assert found["low_ms"] < found["predicted_ms"] < found["high_ms"]  # type: ignore[operator]
    assert {"flat_mfu_ms", "flat_efficiency_ms"} <= set(found)


def test_a_job_file_in_json_or_yaml_says_the_same_as_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    keys = {"gpu": "H100 SXM", "gpus": 8, "hidden": 4096, "ffn": 14336, "layers": 32, "heads": 32, "kv_heads": 8,
            "vocab": 128256, "seq": 8192, "tp": 2, "gbs": 16}  # fmt: skip
    Path("job.json").write_text(json.dumps(keys))
    Path("job.yaml").write_text("\n".join(f"{key}: {value}" for key, value in keys.items()))
    times = {
        asked(capsys, "predict", "--job", "job.json")["predicted_ms"],
        asked(capsys, "predict", "--job", "job.yaml")["predicted_ms"],
        asked(capsys, *MODEL, "--tp", "2", "--gbs", "16")["predicted_ms"],
    }
    assert len(times) == 1


def test_rows_come_back_with_predictions_and_errors_by_family(capsys: pytest.CaptureFixture[str]) -> None:
    rows_file("a,h100_sxm,8,4096,32,32,32000,4096,2,1,500", "b,B200,8,4096,32,32,32000,4096,4,2,")
    found = asked(capsys, "predict", "--rows", "rows.csv", "--output", "out.csv")
    assert found["errors"]["all: time"]["rows"] == 1  # type: ignore[index]
    back = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
    assert [row["name"] for row in back] == ["a", "b"]
    assert all(float(row["predicted_low_ms"]) < float(row["predicted_ms"]) for row in back)


def test_factors_are_fitted_to_measured_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows_file("a,H100,8,8192,16,64,32000,4096,8,1,1000")
    before = asked(capsys, "predict", "--rows", "rows.csv", "--output", "one.csv")
    after = asked(capsys, "predict", "--rows", "rows.csv", "--calibrate", "rows.csv", "--output", "two.csv")
    first, second = (abs(float(each["errors"]["all: time"]["worst"])) for each in (before, after))  # type: ignore[index]
    assert second < first


def test_every_mistake_of_every_row_is_told_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows_file("a,TPU,8,4096,32,32,32000,4096,3,1,", "b,H100,8,x,32,32,32000,,2,1,")
    said = refused(capsys, "predict", "--rows", "rows.csv", "--output", "out.csv")
    for words in ("line 2: gpu TPU", "line 3: hidden x", "line 3: seq"):
        assert words in said
    assert not Path("out.csv").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tp", "3"), "gpus 8: must be tp x pp x cp x dp"),
        (("--tp", "64"), "must be tp x pp x cp x dp"),
        (("--precision", "int3"), "precision int3"),
        (("--precision", "nvfp4"), "H100 was measured in bf16, fp8"),
        (("--recompute", "some"), "is none of none, selective, full"),
        (("--ep", "2"), "ep 2: needs experts"),
        (("--gbs", "12"), "gbs 12: must be dp x mbs x micro_batches"),
        (("--output", "x.csv"), "has no effect without --rows"),
        (("--gpus-per-node", "16"), "gpus_per_node 16: must be 1 to 8 for H100"),
        (("--gpu", "GB200", "--gpus-per-node", "8"), "gpus_per_node 8: must be 1 to 4, 36 or 72 for GB200"),
        (("--gpus", "0"), "must be a whole number from 1"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, *MODEL, *words)


def test_options_have_the_names_of_aicb_and_of_generate_too(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"gpus": "16", "tp": "2", "pp": "2", "vpp": "2", "cp": "2", "mbs": "2", "gbs": "16", "seq": "4096"}
    ours = [word for key, value in values.items() for word in (ROW_OPTIONS[key][0], value)]
    theirs = [word for key, value in values.items() for word in (*AICB_NAMES[key], value)]
    model = ("predict", "--model", "llama3_8b", "--gpu", "H100")
    assert asked(capsys, *model, *ours) == asked(capsys, *model, *theirs)
    with pytest.raises(SystemExit):
        workloads(["generate", "--help"])
    generated = capsys.readouterr().out
    assert [name for names in AICB_NAMES.values() for name in names if f"{name} " not in generated] == []


def test_tensor_parallelism_over_more_gpus_than_a_server_has_goes_over_the_nics(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def sent(*words: str) -> float:
        words = (*MODEL, "--tp", "8", "--overlap", "none", *words)
        return float(asked(capsys, *words)["classes_ms"]["tp"])  # type: ignore[index]

    assert sent("--gpus-per-node", "4") > 1.3 * sent("--gpus-per-node", "8") == 1.3 * sent()


def test_racks_of_a_gb200_may_be_of_36_or_72_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    def sent(size: str) -> float:
        """Milliseconds of expert parallelism over 40 GPUs."""
        words = ("--model", "deepseek_v2", "--gpu", "GB200", "--gpus", "80", "--gbs", "80", "--ep", "40")
        found = asked(capsys, "predict", *words, "--overlap", "none", "--gpus-per-node", size)
        return float(found["classes_ms"]["ep"])  # type: ignore[index]

    assert sent("36") > sent("72") == sent("4")


def test_an_unknown_column_is_named_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.csv").write_text("gpu,hiden\nH100,1\n")
    assert "'hiden': is no column; did you mean hidden?" in refused(capsys, "predict", "--rows", "rows.csv")
    Path("twice.csv").write_text("gpus,gpus\n8,16\n", encoding="utf-8")
    assert "gpus: this column is there twice" in refused(capsys, "predict", "--rows", "twice.csv")


def test_columns_of_nobody_come_back_and_are_told_and_numbers_may_be_of_a_table_of_floats(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("rows.csv").write_text(
        "name,gpu,gpus,hidden,layers,heads,vocab,seq,tp,measured_ms,measured_tokens_s_gpu,cluster\n"
        "a,H100,8.0,4096.0,32,32,32000,4096,2.0,,8000,kalos\n"
    )
    found = asked(capsys, "predict", "--rows", "rows.csv", "--output", "out.csv")
    assert found["without_effect"] == ["cluster"] and found["errors"]["all: time"]["rows"] == 1  # type: ignore[index]
    (back,) = csv.DictReader(Path("out.csv").read_text().splitlines())
    assert back["cluster"] == "kalos"


def test_a_measured_value_that_is_no_number_is_told_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows_file("a,H100,8,4096,32,32,32000,4096,2,1,OOM", "b,H100,8,4096,32,32,32000,4096,2,1,-3")
    said = refused(capsys, "predict", "--rows", "rows.csv", "--output", "out.csv")
    assert "line 2: measured_ms OOM: must be a number above 0" in said and "line 3: measured_ms -3" in said
