"""Fills, indexes, joins, changes and empties tables of an SQLite database in memory, through Python's sqlite3 module.

    python_sqlite.py ROWS
"""
import sqlite3
import sys

CITIES = 211


def check(what, got, expected):
    assert got == expected, f"{what}: {got}, not {expected}"


def person(number, rows):
    return number, f"person {number * 7919 % rows}", number % CITIES, 1900 + number % 120, "x" * (number % 90)


def main(rows):
    base = sqlite3.connect(":memory:")
    base.executescript("CREATE TABLE city(id INTEGER PRIMARY KEY, name TEXT);"
                       "CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, city INTEGER, born INTEGER, about TEXT);")
    base.executemany("INSERT INTO city VALUES (?, ?)", ((number, f"city {number}") for number in range(CITIES)))
    base.executemany("INSERT INTO person VALUES (?, ?, ?, ?, ?)", (person(number, rows) for number in range(rows)))
    base.executescript("CREATE INDEX person_name ON person(name); CREATE INDEX person_city ON person(city, born);")

    found = [base.execute("SELECT name FROM person WHERE id = ?", (key,)).fetchone() for key in range(0, rows, 4)]
    check("single rows", found, [(person(key, rows)[1],) for key in range(0, rows, 4)])
    joined = base.execute("SELECT city.name, count(*), group_concat(person.name) FROM person JOIN city ON city.id = person.city "
                          "GROUP BY city.name ORDER BY city.name").fetchall()
    check("joined rows", sum(row[1] for row in joined), rows)
    ordered = base.execute("SELECT about || name FROM person ORDER BY about, born DESC, id").fetchall()
    lengths = base.execute("SELECT sum(length(about) + length(name)) FROM person").fetchone()[0]
    check("ordered rows", sum(len(row[0]) for row in ordered), lengths)
    base.execute("UPDATE person SET about = about || ' ' || name, born = born + 1 WHERE id % 3 = 0")
    check("changed rows", base.execute("SELECT count(*) FROM person WHERE about LIKE '% person %'").fetchone()[0], (rows + 2) // 3)
    base.execute("DELETE FROM person WHERE id % 2 = 0")
    check("rows left", base.execute("SELECT count(*) FROM person").fetchone()[0], rows // 2)
    check("integrity", base.execute("PRAGMA integrity_check").fetchone()[0], "ok")


main(int(sys.argv[1]))
