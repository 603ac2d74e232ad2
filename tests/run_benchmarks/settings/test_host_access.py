"""Which of HOSTS, cluster_conf.py, ~/.ssh/config and the defaults says how a host is reached."""

import getpass
from pathlib import Path

import pytest

from run_benchmarks.errors import InputProblems
from run_benchmarks.session.preparation import prepare
from run_benchmarks.settings.host_access import endpoint_of, login_command, problems_and_notes
from tests.run_benchmarks.conftest import TEST, Load

CONFIG = """\
Host gpu*
  User fromconfig
  Port 2201
  HostName 10.0.0.7
  IdentityFile {folder}/config_key
  IdentitiesOnly yes
  ProxyJump jumper@bastion,second
  UserKnownHostsFile {folder}/known1 {folder}/known2
  GlobalKnownHostsFile /dev/null
Host bastion
  HostName 192.0.2.9
  User never
  Port 2202
  Ciphers aes128-ctr
Host loop
  ProxyJump loop2
Host loop2
  ProxyJump loop
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(CONFIG.replace("{folder}", str(tmp_path)))
    (tmp_path / "key").write_text("")
    return tmp_path


def test_the_order(folder: Path, load: Load) -> None:
    cluster = load(TEST, 'HOSTS = ["gpu1", "me@gpu2:22", "[fd00::1]:5022", "plain"]').cluster
    first, second, third, plain = (endpoint_of(name, cluster) for name in cluster.HOSTS)
    assert cluster.HOSTS == ("gpu1", "gpu2", "fd00::1", "plain")
    assert (first.user, first.port, first.target) == ("fromconfig", 2201, "10.0.0.7")
    assert first.identities == (folder / "config_key",) and not first.agent and first.key is None
    assert (first.known_hosts, first.more_known_hosts) == (folder / "known1", (folder / "known2",))
    assert first.known_name == "[10.0.0.7]:2201"
    assert (second.user, second.port, second.target) == ("me", 22, "10.0.0.7")
    assert (third.user, third.port, third.jump) == (getpass.getuser(), 5022, None)
    assert (plain.port, plain.known_hosts, plain.agent) == (22, folder / ".ssh" / "known_hosts", True)
    bastion, inner, host = first.way
    assert (bastion.user, bastion.port, bastion.target) == ("jumper", 2202, "192.0.2.9")
    assert (inner.host, inner.jump, inner.user) == ("second", bastion, getpass.getuser())
    assert host == first


def test_cluster_conf_goes_before_the_ssh_configuration(folder: Path, load: Load) -> None:
    text = f'HOSTS = ["gpu1", {{"host": "gpu2", "user": "own", "port": 7, "key": "{folder}/key"}}]\nSSH_USER = "set"\n'
    cluster = load(TEST, f'{text}SSH_PORT = 22\nSSH_KEY = "{folder}/key"\nKNOWN_HOSTS = "{folder}/known"').cluster
    first, second = (endpoint_of(name, cluster) for name in cluster.HOSTS)
    assert (first.user, first.port, first.key) == ("set", 22, folder / "key")
    assert first.known_hosts_files == (folder / "known",)
    assert (second.user, second.port, second.key) == ("own", 7, folder / "key")
    assert first.jump is not None and first.jump.jump is not None
    assert first.jump.identities == (folder / "key",)  # a jump host that has none of its own
    assert first.jump.user == getpass.getuser() and first.jump.jump.user == "jumper"  # SSH_USER is for HOSTS


def test_the_command_that_is_printed_logs_in_as_a_run_does(folder: Path, load: Load) -> None:
    hosts = f'HOSTS = ["gpu1", {{"host": "other", "user": "own", "port": 7, "key": "{folder}/key"}}]\n'
    cluster = load(TEST, hosts).cluster
    assert login_command("gpu1", cluster) == "ssh -p 2201 fromconfig@gpu1"
    assert login_command("other", cluster) == f"ssh -i {folder}/key -p 7 own@other"
    config = folder / ".ssh" / "config"
    assert login_command("gpu1", load(TEST, f'{hosts}SSH_CONFIG = "{config}"\n').cluster).startswith(f"ssh -F {config}")
    assert login_command("other", load(TEST, f'{hosts}SSH_CONFIG = ""\n').cluster).startswith("ssh -F none -i ")


def test_another_file_or_none(folder: Path, load: Load) -> None:
    other = folder / "other"
    other.write_text("Host gpu1\n  Port 9\n")
    assert endpoint_of("gpu1", load(TEST, f'HOSTS = ["gpu1"]\nSSH_CONFIG = "{other}"').cluster).port == 9
    plain = endpoint_of("gpu1", load(TEST, 'HOSTS = ["gpu1"]\nSSH_CONFIG = ""').cluster)
    assert (plain.port, plain.target, plain.jump) == (22, "gpu1", None)
    with pytest.raises(InputProblems, match="an ssh configuration file"):
        load(TEST, 'HOSTS = ["gpu1"]\nSSH_CONFIG = "/none/there"')


def test_users_that_differ_need_a_folder_for_all(folder: Path, load: Load) -> None:
    hosts = 'HOSTS = ["a", "root@b", "root@c"]\nSSH_USER = "bench"'
    with pytest.raises(InputProblems, match=r"FLAGPERF_PATH_HOST = None: a folder .*bench on a, root on b"):
        prepare(load(TEST, hosts), "run20260101000000")
    prepare(load(f'{TEST}FLAGPERF_PATH_HOST = "/shared"\n', hosts), "run20260101000000")


def test_what_is_wrong_or_not_followed_is_said_once(folder: Path, load: Load) -> None:
    cluster = load(TEST, 'HOSTS = ["gpu1", "gpu2", "gpu3", "gpu4", "loop"]').cluster
    (problem,), (note,) = problems_and_notes(cluster)
    assert "a way that ends, not loop > loop2 > loop" in str(problem)
    assert note.endswith("`ciphers aes128-ctr` is not followed here (bastion)")
    (folder / ".ssh" / "config").write_text("Match exec true\n  User x\n")
    (first, *_), _ = problems_and_notes(load(TEST, 'HOSTS = ["gpu1"]').cluster)
    assert first.file == str(folder / ".ssh" / "config") and "Match exec is not supported" in first.allowed
