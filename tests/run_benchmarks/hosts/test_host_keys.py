"""known_hosts in OpenSSH's format: read, hashed, recorded, and asked of a server."""

import subprocess
from pathlib import Path

import paramiko
import pytest
from paramiko.hostkeys import HostKeyEntry

from run_benchmarks.errors import ConnectError, HostKeyError
from run_benchmarks.hosts import host_keys
from run_benchmarks.hosts.connections import Connections
from run_benchmarks.hosts.endpoint import Endpoint, known_name
from run_benchmarks.hosts.ssh_login import connect, scan
from tests.run_benchmarks.hosts.sshd import ADDRESS, SshServer, free_port, public_part

WAYS = Connections(connect)


def at(known_hosts: Path, host: str, port: int) -> Endpoint:
    return Endpoint(host=host, port=port, user="nobody", key=None, known_hosts=known_hosts)


def recorded(known_hosts: Path, host: str, port: int) -> list[paramiko.PKey]:
    return list(host_keys.load(at(known_hosts, host, port)).keys)


def test_a_scan_shows_the_key_without_logging_in(sshd: SshServer) -> None:
    key = scan(sshd.endpoint(), WAYS)
    assert f"{key.get_name()} {key.get_base64()}" == public_part(sshd.host_key)
    listed = subprocess.run(["ssh-keygen", "-lf", sshd.host_key], check=True, capture_output=True, text=True).stdout
    assert host_keys.fingerprint(key) == f"ssh-ed25519 {listed.split()[1]}"


def test_a_scan_of_a_closed_port_is_an_error() -> None:
    port = free_port()
    with pytest.raises(ConnectError, match=f"port {port}"):
        scan(at(Path("none"), ADDRESS, port), WAYS)


def test_a_recorded_key_lets_us_in(sshd: SshServer, tmp_path: Path) -> None:
    known = tmp_path / "new" / "known_hosts"
    assert recorded(known, ADDRESS, sshd.port) == []
    host_keys.record(at(known, ADDRESS, sshd.port), scan(sshd.endpoint(), WAYS))
    assert known.stat().st_mode & 0o777 == 0o600
    assert known.parent.stat().st_mode & 0o777 == 0o700
    assert recorded(known, ADDRESS, sshd.port) == [scan(sshd.endpoint(), WAYS)]
    host = sshd.host(known_hosts=known)
    host.connect()
    host.close()


def test_openssh_reads_what_we_record(sshd: SshServer, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    key = scan(sshd.endpoint(), WAYS)
    host_keys.record(at(known, "node1", 22), key)
    host_keys.record(at(known, "node1", 2222), key)
    for name in ("node1", "[node1]:2222"):
        found = subprocess.run(["ssh-keygen", "-F", name, "-f", known], capture_output=True, text=True, check=True)
        assert public_part(sshd.host_key) in found.stdout
    assert known_name("node1", 22) == "node1"


def test_recording_a_host_key_keeps_the_other_lines_of_known_hosts(sshd: SshServer, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    before = b"# mine\nother ssh-rsa AAAA broken\nolder \xff line, and no line end"
    known.write_bytes(before)
    link = tmp_path / "link"
    link.symlink_to(known)
    host_keys.record(at(link, ADDRESS, sshd.port), scan(sshd.endpoint(), WAYS))
    assert link.is_symlink()
    assert known.read_bytes() == before + f"\n[{ADDRESS}]:{sshd.port} {public_part(sshd.host_key)}\n".encode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["known_hosts", "link"]


def test_a_failed_recording_leaves_the_file_alone(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("old\n")
    key = scan(sshd.endpoint(), WAYS)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        host_keys.record(at(known, ADDRESS, sshd.port), key)
    assert [path.name for path in tmp_path.iterdir()] == ["known_hosts"]
    assert known.read_text() == "old\n"


@pytest.mark.parametrize(
    "spoil",
    [
        "[x ssh-ed25519 A\n",
        "x ssh-ed25519 AAAA=A=A\n",
        "only two\n",
        "x ssh-nonsense AAAA\n",
        "|1|AAAA|A {key}\n",
        "\xff\xfe\n",
        "\n#\n",
    ],
)
def test_hashed_names_and_bad_lines(sshd: SshServer, tmp_path: Path, spoil: str) -> None:
    """As OpenSSH does, a line that is none is passed over; a hashed name is found."""
    known = tmp_path / "known_hosts"
    known.write_text(f"[{ADDRESS}]:{sshd.port} {public_part(sshd.host_key)}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, capture_output=True)
    (tmp_path / "known_hosts.old").unlink()
    assert known.read_text().startswith("|1|")
    known.write_text(spoil.replace("{key}", public_part(sshd.host_key)) + known.read_text(), encoding="latin-1")
    assert recorded(known, ADDRESS, sshd.port) == [scan(sshd.endpoint(), WAYS)]
    assert recorded(known, ADDRESS, 22) == []
    host = sshd.host(known_hosts=known)
    host.connect()
    host.close()


def test_several_names_on_a_line(sshd: SshServer, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"a,[{ADDRESS}]:{sshd.port},b\t{public_part(sshd.host_key)}  a comment\n")
    assert len(recorded(known, ADDRESS, sshd.port)) == 1
    assert len(recorded(known, "b", 22)) == 1


def test_only_the_hosts_own_entries_are_parsed(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login among a thousand recorded hosts costs what one among one does."""
    known = tmp_path / "known_hosts"
    others = "".join(f"10.0.{n // 250}.{n % 250},node{n} {public_part(sshd.host_key)}\n" for n in range(1000))
    known.write_text(f"{others}[{ADDRESS}]:{sshd.port} {public_part(sshd.host_key)}\n")
    parsed: list[str] = []
    parse = HostKeyEntry.from_line

    def counted(line: str) -> HostKeyEntry | None:
        parsed.append(line)
        return parse(line)

    monkeypatch.setattr(HostKeyEntry, "from_line", counted)
    assert len(recorded(known, ADDRESS, sshd.port)) == 1
    assert len(recorded(known, "node7", 22)) == 1
    assert len(parsed) == 2


def test_a_changed_file_is_read_again(sshd: SshServer, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    key = scan(sshd.endpoint(), WAYS)
    for name in ("node1", "node2", "node3"):
        assert recorded(known, name, 22) == []
        host_keys.record(at(known, name, 22), key)
        assert recorded(known, name, 22) == [key]


@pytest.mark.parametrize(
    ("names", "known"),
    [
        ("[127.0.*]:{port}", True),
        ("[127.0.0.?]:*,!other", True),
        ("node*,[127.*]:{port}", True),
        ("[127.*]:{port},![127.0.0.1]:*", False),
        ("127.*", False),
        ("*", True),
    ],
)
def test_names_with_wildcards(sshd: SshServer, tmp_path: Path, names: str, known: bool) -> None:
    """As ssh-keygen finds them, and as ssh would."""
    file = tmp_path / "known_hosts"
    file.write_text(f"{names.format(port=sshd.port)} {public_part(sshd.host_key)}\n")
    assert (recorded(file, ADDRESS, sshd.port) == [scan(sshd.endpoint(), WAYS)]) is known
    name = f"[{ADDRESS}]:{sshd.port}"
    found = subprocess.run(["ssh-keygen", "-F", name, "-f", file], capture_output=True, text=True, check=False)
    assert bool(found.stdout) is known


@pytest.mark.parametrize("hashed", [False, True])
def test_a_revoked_key_lets_nobody_in(sshd: SshServer, tmp_path: Path, hashed: bool) -> None:
    known = tmp_path / "known_hosts"
    name, key = f"[{ADDRESS}]:{sshd.port}", public_part(sshd.host_key)
    written = paramiko.HostKeys.hash_host(name) if hashed else "*"
    known.write_text(f"{name} {key}\n@revoked {written} {key}\n@cert-authority * {key}\n")
    assert recorded(known, ADDRESS, sshd.port) == []
    with pytest.raises(HostKeyError, match="is marked @revoked in "):
        sshd.host(known_hosts=known).connect()
    known.write_text(f"{name} {key}\n@revoked another {key}\n@cert-authority * {key}\n")
    assert len(recorded(known, ADDRESS, sshd.port)) == 1
