"""The work of the demo; uses the standard library only. Arguments: the name of one part."""

from __future__ import annotations

import json
import queue
import random
import sqlite3
import sys
import threading

WORDS = "amber birch cedar dune ember fjord grove heath isle juniper kelp loam moss".split()


def text(source: random.Random, words: int) -> str:
    first = source.randrange(len(WORDS))
    return " ".join((WORDS * 4)[first : first + words])


def item(source: random.Random) -> str:
    return f"{text(source, 3)} {source.randrange(1000)}"


def answer(requests: queue.SimpleQueue[str | None], kept: list[object], answered: list[int]) -> None:
    while True:
        body = requests.get()
        if body is None:
            return
        records = json.loads(body)
        kept.append(records[len(kept) % 100 :: 200])
        answered.append(len(json.dumps(records)))


def requests() -> int:
    """A server: 8 threads each answer the next request, 2 MB of JSON, and a little of every request stays in a cache."""
    source = random.Random(1)
    records = [
        {"id": at, "name": text(source, 2), "note": item(source) * (at % 12), "tags": [str(at), "new"]}
        for at in range(20_000)
    ]
    bodies = [json.dumps(records[::2]), json.dumps(records[1::2])]
    waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    kept: list[object] = []
    answered: list[int] = []
    threads = [threading.Thread(target=answer, args=(waiting, kept, answered)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for number in range(16):
        waiting.put(bodies[number % len(bodies)])
    for _ in threads:
        waiting.put(None)
    for thread in threads:
        thread.join()
    return sum(answered)


def buffers() -> int:
    """Receive messages of 40 MB, with a length that is unknown until the end."""
    received = 0
    part = b"x" * 4_000
    for _ in range(12):
        message = bytearray()
        for _ in range(10_000):
            message += part
        received += len(message)
    return received


def sqlite() -> int:
    """An in-memory shop: load, index, query, delete and load again."""
    source = random.Random(1)
    database = sqlite3.connect(":memory:")
    database.executescript(
        "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, note TEXT);"
        "CREATE TABLE sale (id INTEGER PRIMARY KEY, customer INTEGER, item TEXT, price INTEGER);"
    )
    customers = 20_000
    found = 0
    for _ in range(2):
        database.executemany(
            "INSERT INTO customer (name, note) VALUES (?, ?)",
            ((text(source, 2), text(source, source.randint(1, 30))) for _ in range(customers)),
        )
        database.executemany(
            "INSERT INTO sale (customer, item, price) VALUES (?, ?, ?)",
            ((source.randrange(customers), item(source), source.randrange(10_000)) for _ in range(3 * customers)),
        )
        database.execute("CREATE INDEX IF NOT EXISTS sale_item ON sale (item, price)")
        rows = database.execute(
            "SELECT name, count(*), sum(price), group_concat(item) FROM customer JOIN sale ON customer.id = customer"
            " GROUP BY name ORDER BY sum(price) DESC"
        ).fetchall()
        found += len(rows)
        for _ in range(1500):
            query = "SELECT item, price FROM sale WHERE item >= ? ORDER BY item, price LIMIT 10"
            found += len(database.execute(query, (item(source),)).fetchall())
        database.execute("DELETE FROM sale WHERE id % 3 = 0")
        database.execute("DELETE FROM customer WHERE id % 2 = 0")
    return found


def objects() -> int:
    """Replace random records in a working set, and turn some of it into JSON and back."""
    source = random.Random(1)
    slots: list[object] = [None] * 40_000
    characters = 0
    for step in range(120_000):
        slot = source.randrange(len(slots))
        slots[slot] = {
            "id": step,
            "name": text(source, 2),
            "scores": [step * 0.5, step / 3, float(slot)],
            "tags": {WORDS[step % len(WORDS)]: str(step)},
        }
        if step % 20_000 == 0:
            document = json.dumps(slots[: len(slots) // 4])
            characters += len(document)
            slots[: len(slots) // 4] = json.loads(document)
    return characters


if __name__ == "__main__":
    print({"requests": requests, "buffers": buffers, "sqlite": sqlite, "objects": objects}[sys.argv[1]]())
