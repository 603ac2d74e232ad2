"""~/.ssh/config as people have it; where ssh can be asked (ssh -G), it says the same."""

import subprocess
from pathlib import Path

import pytest

from run_benchmarks.hosts.ssh_config import HostOptions, SshConfig, SshConfigError

TEXT = """\
# people's
Include conf.d/*.conf
Host gpu* !gpu9   # the machines
    HostName %h.cluster.example.org
    User bench
    Port = 2222
    IdentityFile ~/.ssh/id_bench
    IdentityFile "{folder}/other key"
    ProxyJump admin@bastion.example.org:2200,inner
    UserKnownHostsFile {folder}/known ~/.ssh/known_too
    HostKeyAlias cluster
    ControlMaster auto
    ForwardAgent yes
Host gpu2
    User late
    IdentitiesOnly yes
Match host *.cluster.example.org user bench
    CertificateFile {folder}/bench-cert.pub
Host behind
    ProxyCommand /usr/bin/nc -X 5 %h %p # not a comment
    ProxyJump never
Host direct
    ProxyJump none
Host *
    IdentityAgent none
    Ciphers aes128-ctr
    StrictHostKeyChecking accept-new
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshConfig:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ssh"
    (folder / "conf.d").mkdir(parents=True)
    (folder / "conf.d" / "a.conf").write_text("Host gpu3\n  Port 33\nMatch originalhost gpu4\n  Port 44\n")
    (folder / "conf.d" / "b.conf").write_text("Include nothing/there\nHost gpu3\n  Port 34\n")
    (folder / "config").write_text(TEXT.replace("{folder}", str(tmp_path)))
    return SshConfig([folder / "config"])


def test_what_is_said_of_a_host(config: SshConfig, tmp_path: Path) -> None:
    options = config.lookup("gpu1")
    assert options == HostOptions(
        address="gpu1.cluster.example.org",
        port=2222,
        user="bench",
        identities=(tmp_path / ".ssh" / "id_bench", tmp_path / "other key"),
        certificates=(tmp_path / "bench-cert.pub",),
        identities_only=False,
        agent=False,
        user_known_hosts=(tmp_path / "known", tmp_path / ".ssh" / "known_too"),
        global_known_hosts=None,
        host_key_alias="cluster",
        jumps="admin@bastion.example.org:2200,inner",
        proxy_command="",
        unused=("ciphers aes128-ctr", "stricthostkeychecking accept-new"),
    )
    assert config.lookup("gpu2").user == "bench" and config.lookup("gpu2").identities_only
    assert [config.lookup(f"gpu{n}").port for n in (3, 4, 9)] == [33, 44, None]
    assert config.lookup("behind").proxy_command == "/usr/bin/nc -X 5 behind 22 # not a comment"
    assert config.lookup("behind", port=2).proxy_command == "/usr/bin/nc -X 5 behind 2 # not a comment"
    assert config.lookup("direct").jumps == config.lookup("direct").proxy_command == ""
    assert config.lookup("gpu1", user="me").certificates == ()  # Match user


@pytest.mark.parametrize("host", ["gpu1", "gpu2", "gpu3", "gpu4", "gpu9", "direct"])
def test_ssh_says_the_same(config: SshConfig, tmp_path: Path, host: str) -> None:
    """Without the Include, which ssh looks for in the home of the password file."""
    own = tmp_path / "own"
    folder = tmp_path / ".ssh" / "conf.d"
    own.write_text((tmp_path / ".ssh" / "config").read_text().replace("conf.d/*", f"{folder}/*"))
    (folder / "b.conf").write_text("Host gpu3\n  Port 34\n")
    done = subprocess.run(["ssh", "-G", "-F", own, host], capture_output=True, text=True, check=True)
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    options = SshConfig([own]).lookup(host)
    assert options.address == said["hostname"]
    assert (options.port or 22) == int(said["port"])
    assert options.user in (None, said["user"])
    assert options.jumps.replace("inner", "") == said.get("proxyjump", "").replace("inner", "")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("Match localnetwork 10.0.0.0/8\n  User x\n", "line 1", "not 'localnetwork'"),
        ("Host a\n  Include {folder}/has_host\n", "line 1", "put the Include before any Host"),
        ("Include {folder}/loop\n", "line 1", "16 deep"),
        ("Include 'x\n", "line 1", "No closing quotation"),
        ("Match exec true\n  User x\n", "gpu1", "Match exec is not supported"),
        ("Host *\n  Port many\n", "gpu1", "cannot be understood for gpu1"),
        ("IdentityFile ~/.ssh/%Q\n", "gpu1", "cannot be understood for gpu1"),
        ("Match all host x\n  User x\n", "gpu1", "cannot be understood for gpu1"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path: Path, text: str, place: str, message: str) -> None:
    (tmp_path / "has_host").write_text("Host b\n  User b\n")
    (tmp_path / "loop").write_text(f"Include {tmp_path}/loop\n")
    file = tmp_path / "config"
    file.write_text(text.replace("{folder}", str(tmp_path)))
    with pytest.raises(SshConfigError, match=message) as caught:
        SshConfig([file]).lookup("gpu1")
    assert caught.value.place == place


def test_an_include_goes_back_to_its_block(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("Port 5\n")
    (tmp_path / "hosts").write_text("Host b\n  User b\n")
    file = tmp_path / "config"
    file.write_text(f"Include {tmp_path}/hosts\nCompression yes\nHost a\n  Include {tmp_path}/plain\n  User a\n")
    config = SshConfig([file])
    found = [config.lookup(host) for host in "abc"]
    assert [(options.user, options.port) for options in found] == [("a", 5), ("b", None), (None, None)]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SshConfigError, match="cannot be read: Is a directory"):
        SshConfig([tmp_path])
