"""What a newcomer reads after a mistake: whole messages, each with file, key, value and what is allowed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.errors import InputProblems
from run_benchmarks.plan.resolve import resolve
from run_benchmarks.settings.run import TestConf
from run_benchmarks.settings.settings import load_settings
from tests.run_benchmarks.conftest import CLUSTER, TEST, Load

FILE = Path(__file__).parents[2] / "data" / "messages.txt"
# Blocks of a mistake, after ">>> ", that is added to a sound test_conf.py, and all that is said of it.
MESSAGES = [block.partition("\n")[::2] for block in FILE.read_text(encoding="utf-8").strip().split("\n\n")]
LLAMA = TEST.replace('"network"', '"llama"') + "ONE['overrides'] = {'max_steps': None}\n"


def shortened(text: str) -> str:
    """The text without the lists of what there is, which grow with every setting and config."""
    text = re.sub(r"(?m)^((?:keys|settings) of [\w.: ]+?): .*(?:\n  .*)*", r"\1: ...", text)
    return re.sub(r"known: (config_|--)\S.*", "known: ...", text)


def said(load: Load, folder: Path, text: str, cluster: str = CLUSTER) -> list[str]:
    with pytest.raises(InputProblems) as caught:
        resolve(load(text, cluster), local_python="python3")
    return str(caught.value).replace(f"{folder}/", "").replace(f"{ROOT}/", "").splitlines()


@pytest.mark.parametrize(("mistake", "expected"), MESSAGES, ids=[mistake for mistake, _ in MESSAGES])
def test_a_mistake_in_test_conf(mistake: str, expected: str, load: Load, tmp_path: Path) -> None:
    found = said(load, tmp_path, f"{TEST}{mistake.removeprefix('>>> ')}\n")
    assert shortened("\n".join(found)) == expected


def test_what_is_allowed_is_listed_once(load: Load, tmp_path: Path) -> None:
    found = said(load, tmp_path, f"{TEST}DATA = '/raid'\nSHM_SIZ = '1G'\n")
    listed = " ".join(line.strip() for line in found[2:])
    assert listed == f"keys of test_conf.py: {', '.join(sorted(TestConf.model_fields))}"


def test_a_name_of_one_s_own_is_taken(load: Load) -> None:
    assert load(f"{TEST}_DATA = '/raid'\n").test.VENDOR == "cpu"


def test_a_rule_that_an_override_broke_names_it(load: Load, tmp_path: Path) -> None:
    (found,) = said(load, tmp_path, LLAMA)
    assert found == (
        "test_conf.py: ONE.overrides.max_steps = None: the run has no end; "
        "allowed: one of max_steps, max_samples, max_epochs at least"
    )


def test_a_mistake_in_cluster_conf(load: Load, tmp_path: Path) -> None:
    cluster = "HOSTS = ['a']\nSSH_USER = 'a b'\nNETWORK_INTERFACE = 'much too long a name'\nSSH_PORT = 'x'\n"
    assert said(load, tmp_path, TEST, cluster) == [
        "cluster_conf.py: SSH_PORT = 'x': expected a whole number from 1 to 65535 (where sshd listens)",
        "cluster_conf.py: SSH_USER = 'a b': expected a user's name: letters, digits, '_', '-', '.' and '@'",
        "cluster_conf.py: NETWORK_INTERFACE = 'much too long a name': expected 'auto' or the name of a network "
        "interface such as 'eth0', 15 characters at most",
    ]


def test_a_file_that_is_not_there_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(
        InputProblems, match=r"/none\.py: cannot be read: No such file or directory; allowed: a config file$"
    ):
        load_settings(tmp_path / "none.py", tmp_path / "none.py")


def test_no_message_shows_a_regular_expression_or_none_for_nothing(tmp_path: Path) -> None:
    texts = [expected for _, expected in MESSAGES]
    with pytest.raises(InputProblems) as caught:
        load_settings(tmp_path / "none.py", tmp_path / "none.py")
    texts.append(str(caught.value))
    assert not [text for text in texts if re.search(r"\^|\\\\w|\(\?|\(file\)|= None|see above|Input should", text)]


PARAMIKO = """
import logging, sys
from pathlib import Path
from run_benchmarks.console.terminal import start_logging, stop_logging
logging.getLogger("paramiko.transport").error("Exception (client): Error reading SSH protocol banner")
start_logging("debug", Path(sys.argv[1]))
logging.getLogger("paramiko.transport").error("Socket exception: Connection reset by peer (104)")
stop_logging()
"""


def test_paramiko_speaks_to_the_log_alone(tmp_path: Path) -> None:
    """A broken connection's traceback helps nobody on the console. In a process without pytest's own handlers."""
    argv = [sys.executable, "-c", PARAMIKO, str(tmp_path / "run.log")]
    answer = subprocess.run(argv, capture_output=True, text=True, timeout=200, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    assert "Socket exception" in (tmp_path / "run.log").read_text()
