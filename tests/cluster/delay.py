"""Delays frames: reads them where they enter one interface and sends them out of another when they are due.

    python -m tests.cluster.delay cdabc-1 cdabc-1d 10.77.3.2=0.005:0.0 all=0.0:0.01

Each word is a destination, the seconds that frames to it wait, and the share of them that is lost. Frames keep the
kernel's offloads (virtio-net headers), so that 64 KiB of TCP cost one read and one write. It prints "ready" once it
reads, and ends with the process that started it.
"""

import ctypes
import heapq
import random
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence

_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_ETH_P_ALL, _SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 0x0003, 33, 32
_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29
_BUFFER_BYTES = 64 << 20
_FRAME_BYTES = 10 + 14 + (1 << 16)
# Offsets behind the virtio-net header of 10 bytes.
_ETHERTYPE, _DESTINATION = slice(22, 24), slice(40, 44)
_IPV4 = b"\x08\x00"
_EVERYBODY = b""


def parse(words: Sequence[str]) -> dict[bytes, tuple[float, float]]:
    """(seconds, share lost) by the destination's four bytes, those of "all" under no bytes."""
    found = {}
    for word in words:
        destination, _, values = word.partition("=")
        delay, _, loss = values.partition(":")
        key = _EVERYBODY if destination == "all" else socket.inet_aton(destination)
        found[key] = (float(delay), float(loss))
    return found


def open_packets(interface: str) -> socket.socket:
    """A socket for whole frames of the interface, with virtio-net headers."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    packets.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    packets.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    packets.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
    return packets


def forward(incoming: socket.socket, outgoing: socket.socket, rules: Mapping[bytes, tuple[float, float]]) -> None:
    """Forward until killed. Frames without a rule are not touched: the kernel carries those itself."""
    due: list[tuple[float, int, bytes]] = []
    number = 0
    while True:
        now = time.monotonic()
        while due and due[0][0] <= now:
            frame = heapq.heappop(due)[2]
            try:
                outgoing.send(frame)
            except OSError:  # a full queue loses frames, and so does a cable that goes away
                continue
        ready, _, _ = select.select([incoming], [], [], max(0.0, due[0][0] - now) if due else None)
        if not ready:
            continue
        frame = incoming.recv(_FRAME_BYTES)
        if frame[_ETHERTYPE] != _IPV4:
            continue
        rule = rules.get(frame[_DESTINATION]) or rules.get(_EVERYBODY)
        if rule is None or random.random() < rule[1]:
            continue
        number += 1  # frames due at one time keep their order
        heapq.heappush(due, (time.monotonic() + rule[0], number, frame))


def main(argv: Sequence[str]) -> None:
    """Carry packets from one interface to the other, late, until the parent ends."""
    source, outlet, *words = argv
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    incoming, outgoing = open_packets(source), open_packets(outlet)
    incoming.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    outgoing.bind((outlet, 0))
    incoming.bind((source, _ETH_P_ALL))
    print("ready", flush=True)
    forward(incoming, outgoing, parse(words))


if __name__ == "__main__":
    main(sys.argv[1:])
