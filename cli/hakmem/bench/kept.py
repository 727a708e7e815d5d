"""Results that are small enough to be kept in the repository, and the report that is made from them.

    python -m hakmem.bench.kept pack DIR FILE        the results.json in DIR, as a smaller file
    python -m hakmem.bench.kept report FILE DIR      results.json, report.html and report.md from that, in DIR

Every figure of every repetition is there. What is not is the resident set over the time of each run, so that the report
has no plot of it, and whatever tells of the machine's folders alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hakmem.bench import since
from hakmem.errors import Failure

FORMAT = 1
_CHOICES = ("repetitions", "timeout", "seed")
_ALLOCATOR = ("name", "title", "version", "source")
_COPIED = ("begun", "size", "machine", "hakmem", "reference", "strace_problem", "left_out", "workloads")
_PAIR = ("kind", "workload", "allocator")
_LEFT_OUT = (*_PAIR, "course", "samples")


def _keys(runs: list[dict]) -> dict[str, list[str]]:
    """The names of the figures of each kind of run, in the order in which they first appear."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        found.setdefault(run["kind"], {}).update(dict.fromkeys(key for key in run if key not in _LEFT_OUT))
    return {kind: list(keys) for kind, keys in found.items()}


def pack(stored: dict) -> dict:
    keys = _keys(stored["runs"])
    return {
        "format": FORMAT,
        **{name: stored[name] for name in _COPIED},
        "choices": {name: stored["choices"][name] for name in _CHOICES},
        "allocators": [{name: entry[name] for name in _ALLOCATOR} for entry in stored["allocators"]],
        "keys": keys,
        "runs": [
            [*(run[name] for name in _PAIR), *(run.get(key) for key in keys[run["kind"]])] for run in stored["runs"]
        ],
    }


def unpack(kept: dict) -> dict:
    """Returns results in the form that the report reads, without the figures that a run does not have."""
    if kept["format"] != FORMAT:
        raise Failure(f"results of format {kept['format']}; this is for {FORMAT}")
    runs = []
    for row in kept["runs"]:
        figures = dict(zip(kept["keys"][row[0]], row[len(_PAIR) :]))
        there = {key: value for key, value in figures.items() if value is not None or key == "failure"}
        runs.append(dict(zip(_PAIR, row)) | there)
    return {name: value for name, value in kept.items() if name != "keys"} | {"runs": runs}


def text(kept: dict) -> str:
    """JSON with a line for each run."""
    head = [f"{json.dumps(name)}: {json.dumps(value)}," for name, value in kept.items() if name != "runs"]
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in kept["runs"])
    return "\n".join(["{", *head, '"runs": [', rows, "]", "}", ""])


def _pack(source: Path, output: Path) -> None:
    output.write_text(text(pack(since.read(source))))


def _report(source: Path, output: Path) -> None:
    from hakmem.bench import report  # here, since it takes a second to load

    stored = unpack(json.loads(source.read_text()))
    output.mkdir(parents=True, exist_ok=True)
    report.write(stored, output)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    acts = {"pack": _pack, "report": _report}
    parser.add_argument("act", choices=acts)
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    try:
        acts[given.act](given.source, given.output)
    except (Failure, OSError, ValueError, KeyError) as error:
        print(f"hakmem: {given.source}: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
