"""The command line of `python -m simulation`: start-up, errors and exit codes."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import MistakeList, SimulationError
from common.summary import Summary
from simulation import cli

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("program", ["workloads", "simulation"])
@pytest.mark.parametrize("word", ["--help", "topolog"])
def test_neither_help_nor_a_mistake_imports_a_verb(program: str, word: str) -> None:
    script = f"import sys; from {program}.cli import VERBS, main; main([{word!r}]); print([*sys.modules]); print(VERBS)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    modules, verbs = map(ast.literal_eval, done.stdout.splitlines()[-2:])
    assert not {place.partition(":")[0] for place, _ in verbs.values()} & {*modules}


def test_the_overview_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {verb} " in said and text in said for verb, (_, text) in cli.VERBS.items())
    assert cli.main([]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topolgy"], "error: unknown verb topolgy: did you mean topology?"),
        (["xyz"], "error: unknown verb xyz: there is topology"),
        (["topology", "--jsn"], "unrecognized arguments: --jsn"),
        (["topology", "--dialect", "french"], "invalid choice: 'french' (choose from"),
        (["topology", "--output", "-", "--json"], "error: --json: stdout takes one of the two"),
    ],
)
def test_a_wrong_command_line_is_one_error(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1 and not captured.out


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (SimulationError("the disk ate it"), 1, "error: the disk ate it\n"),
        (OSError(28, "No space left on device", "/x/y"), 1, "error: /x/y: No space left on device\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (BrokenPipeError(32, "Broken pipe"), 1, "error: output: Broken pipe\n"),  # not of stdout
    ],
)
def test_how_a_verb_ends_is_its_exit_code(
    raised: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_arguments: object) -> Summary:
        raise raised

    monkeypatch.setattr(cli.PROGRAM.verb("topology"), "run", run)
    assert cli.main(["topology"]) == code
    assert capsys.readouterr().err == said


def test_all_mistakes_are_reported_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(_arguments: object) -> Summary:
        mistakes = MistakeList()
        mistakes.add("-g", 0, "at least 1")
        mistakes.add("--from", None, "names no file")
        mistakes.check()
        raise AssertionError

    monkeypatch.setattr(cli.PROGRAM.verb("topology"), "run", run)
    assert cli.main(["topology"]) == 2
    assert capsys.readouterr().err == "error: -g 0: at least 1\nerror: --from: names no file\n"


def test_json_is_one_object_and_a_failed_summary_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = cli.PROGRAM.verb("topology")
    monkeypatch.setattr(module, "run", lambda _arguments: Summary("two words", {"nodes": 2}, failed=True))
    assert cli.main(["topology", "--json"]) == 1
    assert capsys.readouterr().out == '{\n  "nodes": 2\n}\n'
    assert cli.main(["topology"]) == 1
    assert capsys.readouterr().out == "two words\n"
    said = Summary("", {"time": float("nan"), "rates": [float("inf"), 1.5]}).as_json()
    assert json.loads(said, parse_constant=str) == {"time": None, "rates": [None, 1.5]}


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
@pytest.mark.parametrize("verb", ["topology -g 8 -psn 1", "flows --op AllToAll --size 1K --ranks 8"])
def test_other_names_of_stdout_are_a_dash(verb: str, name: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    words = verb.split()
    assert cli.main([*words, "--output", "-"]) == 0
    dash = capfdbinary.readouterr()
    assert cli.main([*words, "--output", name]) == 0
    assert capfdbinary.readouterr() == dash and dash.err
    assert cli.main([*words, "--output", name, "--json"]) == 2
    assert not capfdbinary.readouterr().out


@pytest.mark.parametrize(
    ("verb", "file"),
    [
        ("topology -g 8 -psn 1", "No_Rail_Opti_8g_8gps_SingleToR_400Gbps_H100"),
        ("flows --op AllToAll --size 1K --ranks 8", "ncclFlowModel_detailed_flows.csv"),
    ],
)
def test_an_output_that_is_a_folder_takes_the_file_in_it(verb: str, file: str, tmp_path: Path) -> None:
    assert cli.main([*verb.split(), "--output", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_name_that_the_locale_cannot_print_ends_no_run(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "w").write_text("MICRO\n1\nlayer -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n")
    words = [
        "analytical",
        "-w",
        "w",
        "-g",
        "8",
        "-g_p_s",
        "8",
        "-n_p_s",
        "8",
        "-nv",
        "300",
        "-nic",
        "48",
        "-v",
        "-r",
        "ü-",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "simulation", *words, *options],
        cwd=tmp_path,
        capture_output=True,
        env={
            "LC_ALL": "C",
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "PYTHONIOENCODING": "ascii",
            "PYTHONPATH": str(ROOT),
        },
    )
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["w", "ü-EndToEnd.csv", "ü-EndToEnd.json", "ü-chart.html"]
    assert "\nü-, " in (tmp_path / "ü-EndToEnd.csv").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "ü-EndToEnd.json").read_bytes())["rows"] == 1
    if options:
        assert json.loads(done.stdout)["rows"] == 1
