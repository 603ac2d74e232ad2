"""What holds for every verb of the three programs: --output -, --json, a reader that has gone, the form of mistakes."""

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

from common.command_line import FORCE
from run_benchmarks.commands import starting
from tests.common.every_verb import (
    CALLS,
    CONF,
    DATA,
    FILES,
    PROGRAMS,
    REFUSED,
    VERBS,
    A,
    make_inputs,
    options_of,
    words_of,
)
from tests.docs.pages import ROOT
from workloads.trace import command as tracing
from workloads.trace.record import Trace, load

OUTPUTS = [each for each in VERBS if "--output" in options_of(*each)]


class Ended(NamedTuple):
    """How a call ended: its exit code, and the bytes of stdout and stderr."""

    code: int
    out: bytes
    err: str


class Here(NamedTuple):
    """A folder with the inputs of all calls, in which they run."""

    folder: Path
    said: pytest.CaptureFixture[bytes]

    def call(self, name: str, words: list[str]) -> Ended:
        self.said.readouterr()
        code = PROGRAMS[name][1](words)
        out, err = self.said.readouterr()
        return Ended(code, out, err.decode())


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def traced() -> Trace:
    return next(trace for trace in load(tracing.SELF_CHECK) if trace.job.frame == "Megatron")


@pytest.fixture
def here(
    inputs: Path,
    traced: Trace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Here:
    """A copy of the inputs; what is traced was recorded."""
    monkeypatch.setattr(tracing, "traced_by_frameworks", lambda jobs: [replace(traced, job=job) for job in jobs])
    known = {package: version for each in tracing.KNOWN.values() for package, version in each.items()}
    monkeypatch.setattr(metadata, "version", lambda package: known[package])
    shutil.copytree(inputs, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    for file in ("cluster_conf.py", "test_conf.py", "broken_conf.py"):
        text = (tmp_path / "here" / file).read_text()
        (tmp_path / "here" / file).write_text(text.replace(str(inputs), str(tmp_path / "here")))
    return Here(tmp_path / "here", capfdbinary)


def test_every_verb_has_a_call() -> None:
    assert [*CALLS] == VERBS


def without_output(words: list[str]) -> list[str]:
    index = words.index("--output") if "--output" in words else len(words)
    return words[:index] + words[index + 2 :]


@pytest.mark.parametrize(("name", "verb"), OUTPUTS)
def test_a_dash_is_stdout_or_refused_where_one_output_is_several_files(name: str, verb: str, here: Here) -> None:
    words = without_output(words_of(name, verb))
    dash = here.call(name, [*words, "--output", "-"])
    assert not [*here.folder.rglob("-*")], "a file named -"
    file = here.folder / "made" / "x.yaml"
    to_file = here.call(name, [*words, "--output", str(file)])
    if dash.code == 0:
        assert to_file.code == 0 and dash.out == file.read_bytes() != b""
    else:
        assert (dash.code, dash.out) == (2, b"") and re.search("error: --output -: .*file", dash.err), dash.err
        assert len([*file.parent.rglob("*.*")]) != 1, "a single file could go to stdout"


@pytest.mark.parametrize("place", ["-", "/dev/stdout"])
@pytest.mark.parametrize(
    "words",
    [
        "export job.csv --chakra {}",
        "suite --world_size 8 --rows 1 --output_dir {}",
        "compute merge {} times.csv",
    ],
)
def test_a_folder_or_a_database_is_no_stdout(words: str, place: str, here: Here) -> None:
    before = {*here.folder.iterdir()}
    refused = here.call("workloads", words.format(place).split())
    assert (refused.code, refused.out) == (2, b"") and f": {place}: expected a f" in refused.err
    assert {*here.folder.iterdir()} == before


@pytest.mark.parametrize("place", ["-", "/dev/stdout"])
def test_a_log_csv_on_stdout_is_alone_there(place: str, here: Here) -> None:
    assert here.call("workloads", ["log", "ops", "--csv", "log.csv"]).code == 0
    to_stdout = here.call("workloads", ["log", "ops", "--csv", place])
    assert to_stdout.code == 0 and to_stdout.out == (here.folder / "log.csv").read_bytes()


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("workloads", "compute fill none.csv --device X --dtype q --output o.csv", ["--dtype", "none.csv: No such"]),
        ("workloads", "compute show --database no.db --what", ["--what", "no.db: No such"]),
        ("workloads", "simai --aiob_enable --comp_filepath no.txt --what", ["--what", "no.txt: No such"]),
        ("workloads", "export none.csv --chakra - --world_size x", ["--chakra", "--world_size", "none.csv: No such"]),
        ("workloads", "export none.csv --chakra new --world_size 0", ["--world_size 0", "none.csv: No such"]),
        ("simulation", "analytical -n no.topo -w no.txt --what", ["--what", "no.topo: No such", "no.txt: No such"]),
        ("run", "verify run1 --signers no.signers --what", ["--what", "no.signers: No such"]),
    ],
)
def test_mistakes_in_options_and_files_that_are_missing_are_told_at_once(
    name: str, words: str, said: list[str], here: Here
) -> None:
    told = here.call(name, words.split())
    assert (told.code, told.out) == (2, b"") and len(told.err.splitlines()) == len(said)
    for each, line in zip(said, told.err.splitlines(), strict=True):
        assert line.startswith("error: ") and each in line


@pytest.mark.parametrize("words", ["bundle {} PAIRS", "export {} --format parquet"])
def test_what_is_no_text_does_not_go_to_a_terminal(words: str, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [*words.format(A).split(), "--output", "-", "--test-conf", "test_conf.py"]
    assert here.call("run", asked).code == 0
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    refused = here.call("run", asked)
    assert (refused.code, refused.out) == (2, b"") and "error: --output -: is a terminal" in refused.err


@pytest.mark.parametrize(("name", "verb"), VERBS)
def test_with_json_stdout_is_one_document_and_mistakes_are_as_without_it(name: str, verb: str, here: Here) -> None:
    words = [*words_of(name, verb), *(["--force"] if "--force" in options_of(name, verb) else [])]
    plain, document = here.call(name, words), here.call(name, [*words, "--json"])
    assert document.code == plain.code and (plain.code == 2) == ((name, verb) in REFUSED), plain
    if plain.code == 2:
        assert (document.out, document.err) == (b"", plain.err)
        assert all(line.startswith(("error: ", "  ")) for line in plain.err.splitlines()) and plain.err
    else:
        assert isinstance(json.loads(document.out), dict)


@pytest.mark.parametrize("option", [[], ["--help"]])
@pytest.mark.parametrize(("name", "verb"), VERBS)
def test_a_reader_that_has_gone_changes_nothing(
    name: str, verb: str, option: list[str], here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*words_of(name, verb), *option, *(["--force"] if "--force" in options_of(name, verb) else [])]

    def call() -> Ended:
        with contextlib.suppress(SystemExit):
            return here.call(name, words)
        return Ended(0, b"", here.said.readouterr().err.decode())

    before = call()
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as unread:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", unread)
        assert call()[::2] == before[::2]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("run_benchmarks/run.py list vendors", 0),
        ("run_benchmarks/run.py list vendors --json", 0),
        ("run_benchmarks/run.py --help", 0),
        ("-m simulation topology --help", 0),
        ("-m workloads deviations", 0),
        ("-m workloads generate --output -", 141),
    ],
)
def test_how_a_process_ends_whose_reader_has_gone(words: str, code: int) -> None:
    """141 is what a shell says of a tool that SIGPIPE ended: its work is not done."""
    reader, writer = os.pipe()
    os.close(reader)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    argv = [sys.executable, *words.split()]
    done = subprocess.run(argv, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment)
    os.close(writer)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize(("words", "code"), [("list vendors", 0), ("list vendors --json", 0), ("list Q", 2)])
def test_stdout_that_is_closed_from_the_start_changes_nothing(words: str, code: int) -> None:
    line = f"{sys.executable} run_benchmarks/run.py {words} >&-"
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert done.returncode == code and "Traceback" not in done.stderr, done.stderr


def test_a_run_in_the_background_prints_no_document(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its own console; who started it prints the run's name."""
    ended = 0, here.folder / "result" / A
    words = ["run", *FILES.split(), "--detach", "--json"]
    monkeypatch.setattr(starting, "start", lambda *_, **__: ended)
    answer = here.call("run", words)
    assert (answer.code, json.loads(answer.out)) == (0, {"run_id": A})
    processes = itertools.count()
    monkeypatch.setattr(os, "getpid", lambda: next(processes))
    assert here.call("run", words)[:2] == (0, b"")


@pytest.mark.parametrize(("name", "verb"), [each for each in VERBS if "--force" in options_of(*each)])
def test_force_means_the_same_everywhere(name: str, verb: str) -> None:
    (force,) = (each for each in PROGRAMS[name][0].parser(verb)._actions if "--force" in each.option_strings)
    files = {"run": ": that of --save-baseline", "accept": ": that of --save-expected"}
    assert force.help == FORCE + files.get(verb, "")


@pytest.mark.parametrize(
    ("words", "package"),
    [
        ("workloads import chakra/workload.0.et --output x", "chakra.schema.protobuf"),
        ("workloads export job.csv --chakra d", "chakra.schema.protobuf"),
        ("simulation analytical -w chakra/workload.0.et -n topo", "chakra.schema.protobuf"),
        ("simulation topology export topo", "infragraph"),
        ("simulation topology --from topo.yaml", "yaml"),
        (f"run export {A} {CONF} --format parquet --output x", "pyarrow"),
        (f"workloads compute show --database {DATA}/compute/h100_gemm_perf.parquet", "pyarrow"),
    ],
)
def test_a_missing_package_is_a_failure_and_no_mistake_in_the_input(
    words: str, package: str, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    name, *rest = words.split()
    found = here.call(name, rest)
    assert (found.code, found.out) == (1, b"") and "pip install" in found.err


MISTAKES = {
    f"run run {FILES} --force --set NO=1": ["--force: needs --save-baseline", "NO = 1"],
    f"run accept {FILES} --force --set NO=1": ["--force: needs --save-expected", "NO = 1"],
    f"run run {FILES} --set NO=1 --case Q --save-baseline /none/x": ["NO = 1", "--case 'Q'", "--save-baseline /none/x"],
    f"run accept {FILES} --rungs a --budget 3 --nproc 0 --set NO=1 --save-expected /none/x --repeat 1": [
        "--rungs 'a'", "--budget '3'", "--nproc 0", "NO = 1", "--save-expected '/none/x'", "--repeat '1'",
    ],
    "run resume run1 --cluster-conf none.py": ["none.py: cannot be read", "RUN 'run1'"],
    f"run plan {FILES} --settings --slurm --set NO=1": ["--slurm: is another view", "NO = 1"],
    f"run check {FILES} --hosts x --set NO=1": ["--hosts = 'x'", "NO = 1"],
    "run trust --cluster-conf none.py --test-conf no.py": ["none.py", "no.py"],
    f"run compare run1 run2 --baseline b {CONF} --rules none.toml": [
        "either B or --baseline", "RUN 'run2'", "--baseline = 'b'", "none.toml",
    ],
    f"run compare run1 run2 {CONF}": ["RUN 'run1'", "RUN 'run2'"],
    f"run report run1 run2 {CONF} --output result": ["RUN 'run1'", "RUN 'run2'", "--output result"],
    f"run export run1 {CONF} --format q --table r": ["--format = 'q'", "--table = 'r'", "RUN 'run1'"],
    f"run history --metric m --host h --output x {CONF}": ["--metric = 'm'", "--output = 'x'"],
    "run import-flagperf none --output -": ["--output -", "none/run_benchmarks/config/cluster_conf.py"],
    f"run verify run1 {CONF} --signers none": ["--signers none", "RUN 'run1'"],
    "workloads generate --world_size x --tp y": ["--world_size", "--tp"],
    "workloads generate --world_size 8 --tp 3 --every_stage --output -": ["--output -", "world_size 8"],
    "workloads suite --world_size 7 --rows 1,77 --num_microbatches 0": ["row 77", "row 1 "],
    "workloads diff none.csv no.csv": ["none.csv", "no.csv"],
    "workloads export none.csv no.csv --chakra d": ["none.csv", "no.csv"],
    "workloads import none.et --output x --world_size 0 --comm_groups no.json": [
        "none.et", "--world_size 0", "no.json",
    ],
    "workloads aiob --world_size 3 --tp 2 --database micro.txt --iterations 0 --output -": [
        "world_size 3", "micro.txt", "iterations is 0", "--output -",
    ],
    "workloads compute look-up --device Q --op gemm --shape m=1 --database none.csv": ["lacks k=N", "none.csv"],
    "workloads compute fill none.csv --output x --device Q --database no.db": ["none.csv", "no.db"],
    "workloads compute show --database none.csv no.csv": ["none.csv", "no.csv"],
    "workloads compute merge x none.csv no.csv": ["none.csv", "no.csv"],
    "workloads analyze none no": ["none: ", "no: "],
    "workloads simai --job none.yaml --aiob_enable --comp_filepath no.txt": ["--job none.yaml", "no.txt: No such"],
    "simulation topology -gt Q -bw 9x -l q": ["-gt Q", "-bw 9x", "-l q"],
    "simulation topology --from none.yaml -g 8": ["--from none.yaml", "-g 8"],
    "simulation flows -w none.txt -n none.topo --size 1K": ["-w none.txt", "none.topo", "--size 1K"],
    "simulation flows --op Q --size 1Q --ranks 0": ["--op Q", "--size 1Q", "--ranks 0"],
    "simulation topology edit none.topo --degrade x": ["none.topo", "--degrade x"],
    "simulation topology edit topo --degrade gpu0-*:2 --cut q --slow-gpu 99:0.5": [
        "--degrade gpu0-*:2", "--cut q", "--slow-gpu 99",
    ],
    "simulation topology export none.topo --output x.txt": ["none.topo", "--output x.txt"],
    "simulation topology import none.yaml -gt Q": ["none.yaml", "-gt Q"],
    "simulation analytical -w none.txt -n none.topo -busbw none.yaml --without q": [
        "none.topo", "-w none.txt", "-busbw none.yaml", "--without q",
    ],
    "simulation network -n none.topo -w none.txt --conf none.conf": ["none.topo", "-w none.txt", "none.conf"],
    "simulation network -n topo --op AllReduce --size q --tp 0 --output x": ["--size q", "--tp 0", "--output x"],
    "simulation predict --model q --gpu Z --gpus x": ["--model q", "gpu Z", "gpus x"],
    "simulation predict --rows none.csv --tp 2 --calibrate no.csv": ["--rows none.csv", "--tp 2", "--calibrate no.csv"],
    "simulation predict --model llama2_7b --gpu H100 --gpus 8 -n none --against no --output x": [
        "none: ", "--against no", "--output x",
    ],
    "simulation sweep --model q --gpu Z --gpus x --gbs 0 --tp r -n none.topo": [
        "--model q", "--gpu Z", "--gpus x", "--gbs 0", "--tp r", "none.topo",
    ],
}  # fmt: skip
"""Calls with several mistakes, and what is said of each."""


@pytest.mark.parametrize("words", MISTAKES)
def test_all_mistakes_are_told_at_once(words: str, here: Here) -> None:
    name, *rest = words.split()
    found = here.call(name, rest)
    told = [line for line in found.err.splitlines() if line.startswith("error: ")]
    assert found.code == 2 and found.out == b""
    assert [each for each in MISTAKES[words] if not any(each in line for line in told)] == [], found.err


@pytest.mark.parametrize(("name", "verb"), VERBS)
def test_all_options_that_a_verb_lacks_are_told_at_once(name: str, verb: str, here: Here) -> None:
    found = here.call(name, [*words_of(name, verb), "--qq1", "--qq2"])
    assert found.code == 2 and {"--qq1", "--qq2"} <= {*re.findall("--qq[12]", found.err)}


READ = {
    "--job", "--what-if", "--measured", "--against", "--calibrate", "--network", "--from", "--conf", "--bus-bandwidth",
    "--comm_groups", "--test-conf", "--cluster-conf", "--rules", "--signers", "--comp_filepath",
}  # fmt: skip
"""Options of files that a verb reads; every other one need not be there."""
READ_BY_VERB = {
    ("simulation", "analytical"): {"workload"},
    ("simulation", "flows"): {"workload"},
    ("simulation", "predict"): {"rows"},
    ("run", "import-flagperf"): {"tree"},
    ("workloads", "show"): {"file"},
    ("workloads", "diff"): {"first", "second"},
    ("workloads", "export"): {"files"},
    ("workloads", "import"): {"file"},
    ("workloads", "compute fill"): {"file", "database"},
    **{("workloads", f"compute {verb}"): {"database"} for verb in ("look-up", "show", "check")},
    ("workloads", "compute merge"): {"inputs"},
    ("workloads", "log"): {"file"},
    ("workloads", "analyze"): {"first", "second"},
    ("workloads", "visualize"): {"file"},
    **{("simulation", f"topology {verb}"): {"file"} for verb in ("show", "edit", "draw", "export", "import")},
}


@pytest.mark.parametrize(("name", "verb"), VERBS)
def test_beside_another_mistake_only_what_a_verb_reads_is_missing(name: str, verb: str, here: Here) -> None:
    program = PROGRAMS[name][0]
    parser = program.parser(verb)
    alone = [each for group in parser._mutually_exclusive_groups for each in group._group_actions]
    valued = [each for each in parser._actions if each.nargs != 0 and each.choices is None]
    together = [each for each in valued if each not in alone]
    missing = set()
    for actions in (together, *([each] for each in valued if each in alone)):
        places = {f"none/{number}": each for number, each in enumerate(actions)}
        words = [[*each.option_strings[-1:], place] for place, each in places.items()]
        ended = here.call(name, [*verb.split(), *itertools.chain(*words), "--qq"])
        assert ended.code == 2
        missing |= {places[place].dest for place in re.findall(r"error: (none/\d+): No such file", ended.err)}
    read = {each.dest for each in valued if READ.intersection(each.option_strings)}
    assert missing == read | READ_BY_VERB.get((name, verb), set())


@pytest.mark.parametrize("words", ["suite --output_dir {}", "compute merge {} times.csv", "export job.csv --chakra {}"])
def test_a_name_that_no_file_can_have_is_a_mistake_of_its_option(words: str, here: Here) -> None:
    told = here.call("workloads", [*words.format("x" * 300).split(), "--world_size", "8", "--qq"])
    assert told.code == 2 and "File name too long" in told.err and "--qq" in told.err
