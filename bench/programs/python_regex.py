"""Searches, splits and rewrites the lines of a log with regular expressions: match objects, groups, short strings.

    python_regex.py LINES ROUNDS
"""
import re
import sys

ENTRY = re.compile(r'(?P<host>\d+\.\d+\.\d+\.\d+) - (?P<user>\w+) \[(?P<when>[^]]+)\] '
                   r'"(?P<verb>[A-Z]+) (?P<path>\S+)" (?P<code>\d{3}) (?P<size>\d+)')
PARAMETER = re.compile(r"[?&](\w+)=(\w*)")
WORD = re.compile(r"\W+")


def entry(number):
    return (f'10.{number % 256}.{number // 256 % 256}.1 - user{number % 97} [{number % 28 + 1}/Nov/2026:12:00:{number % 60:02}] '
            f'"{("GET", "POST")[number % 2]} /shop/item{number % 1009}?page={number}&sort=name" {(200, 404)[number % 10 == 0]} {number}')


def main(lines, rounds):
    log = "\n".join(map(entry, range(lines)))
    for turn in range(rounds):
        found = [match.groupdict() for match in ENTRY.finditer(log)]
        assert len(found) == lines, f"round {turn}: {len(found)} entries"
        assert sum(int(fields["size"]) for fields in found) == lines * (lines - 1) // 2, f"round {turn}: the sizes"
        pages = [dict(PARAMETER.findall(fields["path"])) for fields in found]
        assert all(page == {"page": fields["size"], "sort": "name"} for page, fields in zip(pages, found)), f"round {turn}: the parameters"
        masked = ENTRY.sub(lambda match: f"{match['user']} {match['code']}", log).split("\n")
        assert sum(line.endswith(" 404") for line in masked) == (lines + 9) // 10, f"round {turn}: the codes"
        assert all(WORD.split(line)[0].startswith("user") for line in masked), f"round {turn}: the users"


main(*map(int, sys.argv[1:]))
