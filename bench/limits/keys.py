"""Fills a redis server with keys of changing sizes and deletes all but a twentieth, in each round.  keys.py PORT MEBIBYTES

The server makes the keys itself (DEBUG POPULATE).  Exit status 1 if the server has ended.
"""

import random
import socket
import sys
from collections.abc import Iterable

BATCH = 500


def ask(server: socket.socket, commands: Iterable[str]) -> None:
    """Sends the commands one at a time; each answer is a line."""
    for command in commands:
        server.sendall(command.encode() + b"\r\n")
        answer = b""
        while not answer.endswith(b"\r\n"):
            more = server.recv(4096)
            if not more:
                raise ConnectionError("the server is gone")
            answer += more
        if answer.startswith(b"-"):
            raise ConnectionError(answer.decode())


def main(port: int, whole: int) -> None:
    chosen = random.Random(1)
    with socket.create_connection(("127.0.0.1", port)) as server:
        for round_, size in enumerate((30, 500, 120, 3000, 60, 1000, 20_000, 250)):
            count = whole // (size + 100)
            ask(server, [f"DEBUG POPULATE {count} r{round_} {size}"])
            gone = chosen.sample(range(count), count - count // 20)
            ask(server, ("DEL " + " ".join(f"r{round_}:{i}" for i in gone[at : at + BATCH]) for at in range(0, len(gone), BATCH)))


try:
    main(int(sys.argv[1]), int(sys.argv[2]) << 20)
except ConnectionError as error:
    sys.exit(str(error))
