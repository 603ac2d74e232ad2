"""The catalogue of `--lang zh`: whole, with the same values in both languages, and used where it says."""

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from run_benchmarks.commands.check_view import show_reports
from run_benchmarks.commands.cli import PROGRAM, VERBS
from run_benchmarks.console.language import Words, catalogue, forms, words
from run_benchmarks.inspection.findings import HostReport
from tests.run_benchmarks.calling import call

ROOT = Path(__file__).parents[3] / "run_benchmarks"
HAN = re.compile(r"[\u4e00-\u9fff]")
NAMES = ("title", "columns", "_COLUMNS")
# The modules that make the reasons, findings and actions of records.
REASONS = (
    *(
        f"run_benchmarks/results/{name}.py"
        for name in ("judge", "blame", "standstill", "host_findings", "device_findings", "broken_nodes",
                     "derivation", "partial")
    ),
    *(f"run_benchmarks/session/{name}.py" for name in ("run_record", "retries")),
    *(f"run_benchmarks/rounds/{name}.py" for name in ("recording", "watch", "round", "stall", "post_mortem")),
    *(f"training/benchmarks/network/slow_parts/{name}.py" for name in ("blame", "findings", "peer_findings")),
    *(f"run_benchmarks/acceptance/{name}.py" for name in ("suspects", "climb")),
    *(
        f"run_benchmarks/inspection/{name}.py"
        for name in ("check", "capacity", "machines", "health", "health_of_devices", "resolving", "storage")
    ),
    *(
        f"vendors/{name}.py"
        for name in ("health", "amd/health", "ascend/health", "nvidia/health", "nvidia/nvlink_fabric")
    ),
    "run_benchmarks/commands/diagnose.py",
    "run_benchmarks/state/interruption.py",
    "run_benchmarks/compare/comparing.py",
    "run_benchmarks/compare/before.py",
    "training/benchmarks/base/pytorch/outcome.py",
)  # fmt: skip
# Texts of theirs that stay English: evidence beside a reason, warnings, log lines, and what no record has.
PASSED: dict[str, tuple[str, ...]] = {
    "run_benchmarks/results/judge.py": (
        "PerfLog",
        "the last line is cut off",
        "rank {}: PerfLog",
        "rank 0: {} of {} metrics are not in this record: it holds {}, each of {} characters at most, with names of",
    ),
    "run_benchmarks/results/blame.py": ("left at {} (head node's clock)",),
    "run_benchmarks/results/standstill.py": (
        "its launcher did not report it",
        "no state",
        "waits in",
        "in flight",
        "{} collectives of group",
        "no progress for {} s",
        "its launcher silent for {} s since",
    ),
    "run_benchmarks/results/derivation.py": (
        "the log of rank 0 was cut: its FINISHED is not derived from it",
        "FINISHED is not derived: settings of another version",
    ),
    "run_benchmarks/rounds/post_mortem.py": (
        '\n{}\ndf -Pk "$1" 2>/dev/null\necho {}\ndf -Pi "$1" 2>/dev/null\ntrue\n',
    ),
    "run_benchmarks/inspection/health.py": (
        "{} more",
        "in part",
        "not seen",
        'say {} "',
    ),
    "run_benchmarks/inspection/health_of_devices.py": ("not seen",),
    "vendors/health.py": ("in part", "not seen"),
    "vendors/amd/health.py": ("XGMI links are down", "amdgpu.*(GPU reset begin|ring [^ ]+ timeout)"),
    "vendors/nvidia/health.py": (
        "[Requested functionality has been deprecated]",
        r"NVRM: Xid \(PCI:([0-9a-fA-F:.]{1,20})\): (\d{1,4})",
        "NVRM: Xid [^,]*",
        "[Not Supported]",
        "persistence mode",
        "power limit",
        "default power limit",
        "application clocks",
        "default application clocks",
        "hardware slowdown",
        "clocks held by a setting",
        "uncorrected ECC errors",
        "remapped rows",
        "state of the GPUs",
        "not seen",
        "NVLinks are inactive",
    ),
    "vendors/nvidia/nvlink_fabric.py": ("Not Supported", "NVLink fabric"),
    "run_benchmarks/results/device_findings.py": (
        "XGMI links",
        "{} of {} {} are down",
        "memory errors",
        "remapped rows",
        "PCIe width",
        "NVLink fabric",
        "its health",
    ),
    "run_benchmarks/rounds/round.py": (r"^(?:(?:Current thread|Thread) 0x[0-9a-f]+.*|  File \".*\", line \d+ in .*)$",),
    "run_benchmarks/acceptance/suspects.py": (
        "wrong result",
        r"(?:\w+: )?(device|accelerator) (\d{1,4})(?: to (\d{1,4}))?(?:: |$)",
        "the bits of {} of its kind",
        "one device were compared with none: it is alone",
        "devices were compared with none: each is alone",
    ),
    "run_benchmarks/commands/diagnose.py": (
        "at least one case of a benchmark that probes hosts, such as 'network', with nnodes of 2 or more",
    ),
    "run_benchmarks/compare/comparing.py": ("then",),
    "run_benchmarks/state/interruption.py": (
        "stopping cleanly, keeping what there is; once more to leave at once",
        "again: leaving at once. To remove what may still run on the hosts",
    ),
    "training/benchmarks/network/slow_parts/findings.py": (
        "findings: {} is no list",
        "findings: {} is no finding: {} wrong values",
        "findings: {} is no finding: a part is not slow in this way",
        "findings: {}: hosts and node_ranks differ in number, or there are none",
    ),
    "training/benchmarks/base/pytorch/outcome.py": ("slowest device of the run", "% of", "of the datasheet"),
}
IN_TEMPLATES = re.compile(r"""\bwords\(\s*(?:"([^"]*)"|'([^']*)')""")


def asked_for() -> Iterator[str]:
    """The text of every `words("...")` in the code and the templates of the controller."""
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", getattr(node.func, "attr", "")) != "words":
                continue
            for each in node.args[:1]:
                yield from constants(each)
    for file in ROOT.rglob("*.j2"):
        yield from (one or other for one, other in IN_TEMPLATES.findall(file.read_text(encoding="utf-8")))


def titles_of_benchmarks() -> Iterator[str]:
    """The constant titles and columns of the tables and charts in their sections of a report."""
    for file in (ROOT.parent / "training" / "benchmarks").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if "protocol.outcome" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in NAMES:
                yield from constants(node.value)
            if isinstance(node, ast.keyword) and node.arg in NAMES:
                yield from constants(node.value)


def tables_of_commands() -> Iterator[str]:
    """The constant titles and columns of the tables that the controller prints."""
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print_table":
                yield from (text for each in node.args[:2] for text in constants(each))
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "").upper().endswith("COLUMNS"):
                yield from constants(node.value)


def reasons_of(file: Path) -> Iterator[str]:
    """The sentences that a module makes, their values as {}; docstrings, formats of log lines and glue are none."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    parts = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | statements:
            text = node.value
        if " " in text.strip() and re.search(r"[a-z]{2}", text) and "%s" not in text and "%d" not in text:
            yield text


def plain(text: str) -> str:
    """A form without the names of its values, nor a value or separator at its ends."""
    return re.sub(r"^(\{\}|[\s;:,])+|(\{\}|[\s;:,])+$", "", re.sub(r"\{\w+\}", "{}", text))


def constants(node: ast.expr) -> Iterator[str]:
    """The texts of a constant, of those in a tuple, of the values of a table, or of either one of a choice."""
    either = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    either = [*node.values] if isinstance(node, ast.Dict) else either
    for each in node.elts if isinstance(node, ast.Tuple) else either:
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value:
            yield each.value


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_every_text_that_the_code_asks_for_has_chinese() -> None:
    found = [*titles_of_benchmarks()]
    assert "Slowest device against the datasheet" in found and "busbw, GB/s" in found
    assert [text for text in (*asked_for(), *found) if text not in catalogue()] == []


def test_every_title_and_column_of_a_command_has_chinese() -> None:
    found = [*tables_of_commands()]
    assert "severity" in found and "rounds ended" in found
    assert [text for text in found if text not in catalogue()] == []


@pytest.mark.parametrize("module", REASONS)
def test_each_reason_that_a_module_can_give_has_chinese_or_is_passed_on_as_it_is(module: str) -> None:
    known = {plain(text) for text in (*forms(), *catalogue())}
    passed = {plain(text) for text in PASSED.get(module, ())}
    found = {plain(text) for text in reasons_of(ROOT.parent / module)}
    assert found - known - passed == set(), "without Chinese in zh.toml"
    assert passed <= found - known, "listed for nothing"


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        (
            "node2 does not reach the master node1 (which the head node reaches at 10.0.0.1): refused",
            "node2 到不了主节点 node1（控制节点经 10.0.0.1 到达它）：refused",
        ),
        ("n1: names: found n2, n3 do not resolve; expected {}", "n1：名称解析：现状：n2, n3 无法解析；预期：{}"),
        ("rank 3 on a: ended by SIGKILL: no PerfLog event", "主机 a 的进程 3：被信号 SIGKILL 终止：没有 PerfLog 事件"),
        ("round 2: received data is wrong", "第 2 轮：收到的数据有误"),
        ("node2 device 5: 3 uncorrected ECC errors during the round; all ranks finished",
         "node2 device 5：该轮期间有 3 个不可纠正的 ECC 错误；所有进程均已完成"),
        ("rank 0 on a: exit code 1: ValueError: {n} %s", "主机 a 的进程 0：退出码 1：ValueError：{n} %s"),
        ("check its cooling, then run the steps again", "check its cooling, then run the steps again"),
        ("clock fell to 1,095 MHz in 61 % of the steps", "clock fell to 1,095 MHz in 61 % of the steps"),
        ("nobody translated this", "nobody translated this"),
    ],
)  # fmt: skip
def test_a_reason_keeps_its_hosts_and_numbers_in_chinese(english: str, chinese: str) -> None:
    assert Words("zh").reason(english) == chinese
    assert Words("en").reason(english) == english


def test_the_findings_of_a_check_are_in_chinese_with_the_hosts_own_words_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [
        ("clock", "3.2 s from the head node's", "within 1 s", "synchronise with NTP (chronyc makestep)"),
        ("free disk", "1.0 GB on the file system of /var", "4.00 GB for the code in /var", "free some space there"),
    ]
    report = HostReport(host="node1")
    for subject, has, expected, action in found:
        report.add(subject, has, expected, action)
    words.speak("zh")
    try:
        show_reports({"node1": report})
    finally:
        words.speak("en")
    said = "".join(capsys.readouterr().out.split())
    for part in (
        "与控制节点相差3.2s",
        "1s以内",
        "请用NTP同步",
        "/var所在文件系统1.0GB",
        "/var中代码需4.00GB",
        "请在那里腾出空间",
    ):
        assert part in said, said


def test_both_languages_have_the_same_values_and_the_chinese_is_chinese() -> None:
    for english, chinese in (*catalogue().items(), *forms().items()):
        assert fields(english) == fields(chinese), english
        assert HAN.search(chinese), english


@pytest.mark.parametrize(("language", "expected"), [("en", "Hosts"), ("zh", "主机")])
def test_a_text_is_in_the_language_that_was_asked_for(language: str, expected: str) -> None:
    words = Words("zh" if language == "zh" else "en")
    assert words("Hosts") == expected
    assert words("a text that nobody translated {n}", n="{host}") == "a text that nobody translated {host}"


def test_every_command_speaks_the_language_that_it_is_asked_for_and_the_next_one_english_again() -> None:
    said = call("--lang", "zh", "list", "configs").checked().stdout
    assert "用例配置" in said and "厂商" in said and "vendor" not in said.splitlines()[1]
    assert "case configs" in call("list", "configs").checked().stdout
    assert [verb for verb in VERBS if "--lang" not in PROGRAM.parser(verb).format_usage()] == []
    mistake = call("list", "--lang", "de")
    assert mistake.exit_code == 2 and "'en', 'zh'" in mistake.output
