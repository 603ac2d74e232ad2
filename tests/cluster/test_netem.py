"""A wire that was made slow, late or lossy is so, to everybody or to one peer, and whole again when mended."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.host import ClusterHost
from tests.cluster.netem import Impairment, classifier
from tests.cluster.system import run

# The network benchmark on hosts of bad wires (test_network) fails, too, where they are not bad, and costs nothing more.
pytestmark = [pytest.mark.cluster, pytest.mark.alone]
PORT = 29998
DELAY_S = 0.05
DATAGRAMS, LOSS = 2000, 0.1
# A median of round trips over a TCP connection, in milliseconds, and the seconds that 1 MB takes one way.
ECHO = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as server:
    print("up", flush=True)
    while True:
        peer, _ = server.accept()
        with peer:
            while data := peer.recv(65536):
                peer.sendall(data[:1]) if len(data) == 1 else None
"""
ROUND_TRIPS = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as peer:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        peer.sendall(b"x")
        peer.recv(1)
        times.append(time.perf_counter() - begin)
    print(sorted(times)[4])
"""
BULK = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as peer:
    begin = time.perf_counter()
    peer.sendall(bytes(1 << 20))
    peer.shutdown(socket.SHUT_WR)
    peer.recv(1)
    print(time.perf_counter() - begin)
"""
# Counts until its standard input has ended, and what was on its way then.
COUNT = """
import select, socket, sys
with socket.socket(type=socket.SOCK_DGRAM) as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    server.bind(("", int(sys.argv[1])))
    print("up", flush=True)
    found, sources, patience = 0, [server, sys.stdin], None
    while ready := select.select(sources, [], [], patience)[0]:
        if server in ready:
            server.recv(100)
            found += 1
        else:
            sources, patience = [server], 0.5
    print(found)
"""
DATAGRAMS_OUT = """
import socket, sys, time
with socket.socket(type=socket.SOCK_DGRAM) as client:
    for number in range(int(sys.argv[3])):
        client.sendto(b"x", (sys.argv[1], int(sys.argv[2])))
        if number % 50 == 0:
            time.sleep(0.001)
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBed]:
    with TestBed(3, tmp_path_factory.mktemp("netem-bed"), engine=False) as bed:
        echoes = [serve(host, ECHO) for host in bed.hosts]
        yield bed
        for echo in echoes:
            echo.kill()
            echo.communicate()


def serve(host: ClusterHost, code: str) -> subprocess.Popen[str]:
    argv = ["nsenter", f"--net=/proc/{host.pid}/ns/net", sys.executable, "-c", code, str(PORT)]
    server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None and server.stdout.readline() == "up\n"
    return server


def seconds(host: ClusterHost, code: str, peer: ClusterHost) -> float:
    return float(host.exec([sys.executable, "-c", code, peer.address, str(PORT)]).stdout)


def arrived(sender: ClusterHost, receiver: ClusterHost) -> int:
    """How many of the datagrams came through."""
    server = serve(receiver, COUNT)
    sender.exec([sys.executable, "-c", DATAGRAMS_OUT, receiver.address, str(PORT), str(DATAGRAMS)])
    return int(server.communicate(timeout=200)[0])


@pytest.mark.nightly
def test_a_delay_holds_in_what_the_host_sends_and_ssh_goes_on(bed: TestBed) -> None:
    first, second, third = bed.hosts
    first.impair(delay=DELAY_S)
    try:
        assert DELAY_S < seconds(first, ROUND_TRIPS, second) < 1.5 * DELAY_S
        assert DELAY_S < seconds(third, ROUND_TRIPS, first) < 1.5 * DELAY_S
        assert seconds(second, ROUND_TRIPS, third) < DELAY_S / 2
        assert run(bed.ssh_argv(first, "hostname"), timeout=20).stdout == "node1\n"
        assert seconds(first, BULK, second) < 2, "whole segments pass"
    finally:
        first.mend()
    assert seconds(first, ROUND_TRIPS, second) < DELAY_S / 2


@pytest.mark.nightly
def test_a_delay_to_one_peer_leaves_the_others_alone(bed: TestBed) -> None:
    first, second, third = bed.hosts
    first.impair(delay=DELAY_S, peer=second)
    try:
        assert seconds(second, ROUND_TRIPS, first) > DELAY_S
        assert seconds(first, ROUND_TRIPS, third) < DELAY_S / 2
    finally:
        first.mend(peer=second)
    assert seconds(first, ROUND_TRIPS, second) < DELAY_S / 2


@pytest.mark.nightly
@pytest.mark.parametrize("delay", [0.0, 0.01])
def test_the_share_asked_for_is_lost(bed: TestBed, delay: float) -> None:
    first, second, third = bed.hosts
    first.impair(loss=LOSS, delay=delay, peer=second)
    try:
        deviation = (DATAGRAMS * LOSS * (1 - LOSS)) ** 0.5
        assert abs(DATAGRAMS * (1 - LOSS) - arrived(first, second)) < 5 * deviation
        assert arrived(first, third) == DATAGRAMS
    finally:
        first.mend(peer=second)
    assert arrived(first, second) == DATAGRAMS


@pytest.mark.nightly
def test_a_rate_holds_and_another_for_a_peer(bed: TestBed) -> None:
    first, second, third = bed.hosts
    first.impair(rate="20mbit")  # 1 MiB takes 0.42 s
    first.impair(rate="100mbit", peer=third)
    try:
        assert 0.3 < seconds(first, BULK, second) < 2
        assert 0.04 < seconds(first, BULK, third) < 0.3
    finally:
        first.mend()
        first.mend(peer=third)
    assert seconds(first, BULK, second) < 0.3


def test_an_impairment_with_impossible_values_is_refused() -> None:
    with pytest.raises(ValueError, match="loss at least 0 and below 1"):
        Impairment(loss=1.0)
    with pytest.raises(ValueError, match="delay_s is 0 or more"):
        Impairment(delay_s=-1)


def test_the_classifier_is_a_program_of_its_length() -> None:
    words = classifier("10.0.0.1", 0.5).split(",")
    assert int(words[0]) == len(words) - 1 == 9
    assert "21 0 4 167772161" in words and f"53 1 0 {1 << 31}" in words
