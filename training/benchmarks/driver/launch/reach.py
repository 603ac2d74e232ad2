"""Tests whether one host can open a TCP connection to another: one side listens, the other connects.

    python -m training.benchmarks.driver.launch.reach listen --port 29500 --seconds 20
    python -m training.benchmarks.driver.launch.reach connect --host node1 --port 29500 --seconds 10

`listen` answers every connection for that time and exits with 0. `connect` exits with 0 once it was answered, else with
1 and a line that describes the failure. Needs the standard library alone.
"""

import argparse
import contextlib
import socket
import sys
import time

GREETING = b"reached\n"
RETRY_SECONDS = 0.2


def listen(port: int, seconds: float) -> int:
    """Answer every connection for `seconds`; returns the exit code."""
    end = time.monotonic() + seconds
    try:
        server = socket.create_server(("", port))
    except OSError as error:
        print(f"cannot listen on port {port}: {error}")
        return 1
    with server:
        while (left := end - time.monotonic()) > 0:
            server.settimeout(left)
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(GREETING)
    return 0


def connect(host: str, port: int, seconds: float) -> int:
    """Wait at most `seconds` for an answer; returns the exit code."""
    end = time.monotonic() + seconds
    problem = "no answer"
    while (left := end - time.monotonic()) > 0:
        try:
            with socket.create_connection((host, port), timeout=left) as connection:
                if connection.recv(len(GREETING)) == GREETING:
                    return 0
                problem = "somebody else answered"
        except OSError as error:
            problem = str(error)
        time.sleep(RETRY_SECONDS)
    print(f"{host}:{port}: {problem}")
    return 1


def main() -> int:
    """Command line: see the module's docstring."""
    parser = argparse.ArgumentParser(prog="driver.launch.reach", allow_abbrev=False)
    parser.add_argument("action", choices=("listen", "connect"))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    if options.action == "listen":
        return listen(options.port, options.seconds)
    return connect(options.host, options.port, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
