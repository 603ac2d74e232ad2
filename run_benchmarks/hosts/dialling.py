"""Opens a TCP connection within a time limit that covers the name look-up.

A dead name server takes 10 to 20 s until the resolver gives up, and no call of the resolver can be cut short.
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]  # socket.getaddrinfo's


def dial(host: str, port: int, *, seconds: float) -> socket.socket:
    """A socket connected to `port` of `host` (a name or an address), at the first of its addresses that answers.

    Raises:
        TimeoutError: `seconds` were not enough; the message says whether the name server or the host did not answer.
        ConnectionResetError: each address dropped the connection as soon as it was made.
        OSError: the name is unknown, or no address accepts the connection; the message has the reason for each.
    """
    until = time.monotonic() + seconds
    reasons: dict[str, type[OSError]] = {}
    for family, kind, protocol, _, address in _look_up(host, port, seconds):
        left = until - time.monotonic()
        if left <= 0:
            reasons["timed out"] = TimeoutError
            break
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(left)
            connection.connect(address)
        except OSError as error:
            connection.close()
            reasons[str(error) or type(error).__name__] = type(error)
        else:
            return connection
    kinds = set(reasons.values())
    alike = kinds in ({TimeoutError}, {ConnectionResetError})
    raise (kinds.pop() if alike else OSError)("; ".join(sorted(reasons)))


def _look_up(host: str, port: int, seconds: float) -> Sequence[AddressInfo]:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    answers: queue.SimpleQueue[Sequence[AddressInfo] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            answers.put(error)

    threading.Thread(target=ask, name=f"look-up of {host}", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no name server says within {seconds:g} s what address {host} has") from None
    if isinstance(answer, OSError):
        raise type(answer)(*answer.args[:1], f"the name {host} does not resolve ({answer.strerror or answer})")
    return answer
