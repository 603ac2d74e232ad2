"""Stands in for ib_write_bw: a server that takes one client, over TCP; prints the table that perftest prints.

Arguments as perftest's: `-d DEVICE ... -p PORT [ADDRESS]`; the last device counts. A device `broken` is not found, in
perftest's own words. A host with the file SLOW waits after each message, whether it sends or receives.
"""

import socket
import sys
import time
from pathlib import Path

BYTES, TIMES = 1 << 20, 8
SLOW, PAUSE_S = Path("/tmp/slow_hca"), 0.25


def main(words: list[str]) -> int:
    """Serve one client, or be one; returns the exit code."""
    device, port = words[len(words) - words[::-1].index("-d")], int(words[words.index("-p") + 1])
    if device == "broken":
        sys.stderr.write(" Did not detect devices \n Unable to find the Infiniband/RoCE device\n")
        return 1
    begin, pause = time.perf_counter(), PAUSE_S if SLOW.exists() else 0.0
    if words[-2] == "-p":
        with socket.create_server(("0.0.0.0", port)) as server, server.accept()[0] as peer:
            for _ in range(TIMES):
                peer.recv(BYTES, socket.MSG_WAITALL)
                time.sleep(pause)
                peer.sendall(b"1")
    else:
        with socket.create_connection((words[-1], port)) as peer:
            for _ in range(TIMES):
                peer.sendall(bytes(BYTES))
                peer.recv(1)
                time.sleep(pause)
    gbits = 8 * BYTES * TIMES / 1e9 / (time.perf_counter() - begin)
    text = (Path(__file__).parents[3] / "data" / "tools" / "ib_write_bw.txt").read_text()
    head = text[: text.index(" 2   ")]
    print(f"{head} {BYTES}    {TIMES}    {gbits:.2f}    {gbits:.6f}    0.1\n{'-' * 87}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
