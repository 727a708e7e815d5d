"""Parses a document, prints it, and parses that again, some times over, with the C parser and printer of the standard library.

    python_json.py RECORDS ROUNDS
"""
import json
import sys


def record(number):
    return {
        "id": number,
        "name": f"customer {number * 7919 % 100003}",
        "note": "line one\nline \"two\" \u00e9\u4e16" if number % 5 == 0 else None,
        "tags": [f"tag{number % step}" for step in (2, 7, 31)],
        "address": {"street": f"{number % 300} Long Street", "zip": str(10000 + number % 90000), "at": [number / 8, -number / 16]},
        "active": number % 2 == 0,
    }


def main(records, rounds):
    document = [record(number) for number in range(records)]
    text = json.dumps(document)
    for turn in range(rounds):
        parsed = json.loads(text)
        assert parsed == document, f"round {turn}: the document has changed"
        printed = json.dumps(parsed, indent=turn % 2 or None)
        assert json.loads(printed) == document, f"round {turn}: the printed document differs"


main(*map(int, sys.argv[1:]))
