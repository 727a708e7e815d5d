"""The report: one self-contained HTML page, and the main tables as Markdown.

The template lays out the page; report.js fills the table of all workloads and draws the plots from page.py's data.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import jinja2
import vl_convert

from hakmem.bench import page, tables
from hakmem.bench.analysis import MEMORY, TIME, Results
from hakmem.bench.journal import RESULTS
from hakmem.bench.since import Since
from hakmem.bench.workloads import lines_of_scaling
from hakmem.output import write as write_file
from hakmem.runs import HAKMEM

_TEMPLATE = "report.html.j2"

METHOD = (
    "Workloads run one after the other, each under every allocator in a newly shuffled order. All of this is done once "
    "for each repetition, so that drift of the machine affects all allocators alike.",
    "Time is wall-clock time, from the start of the process to its end. CPU time, peak resident set and page faults are "
    "what the kernel counts for the command and the children it waited for; a small launcher reads them, and its own "
    "pages are not included. The peak is that of the largest single process, not the sum.",
    "For a workload with a server, time is the client's; everything else is the server's, from its start to its end. For "
    "a server that forks, such as PostgreSQL, the peak is again that of its largest process.",
    "A workload that measures something itself, such as single calls, is judged by its own figures; no mean and no list "
    "of losses includes it.",
    "The mean resident set and the resident set at the end come from a separate run, which is not timed. It is sampled every "
    "20 ms, over the command and all processes that it started, with shared pages counted once. A server is sampled while the "
    "client runs, up to the client's end. A run that is too short to be sampled has neither figure.",
    "System calls are counted in one more run, under strace, which is not timed; – where strace could not run.",
    "A run that does not end with exit code 0, or exceeds the time limit, has failed, and so has the allocator on that "
    "workload. Such a workload is left out of the geometric means of all allocators, so that all means cover the same "
    "work; its other figures are still shown.",
)


def _headline_tables(results: Results, since: Since | None) -> list[tables.Table]:
    """The tables that a reader wants first."""
    found = [tables.summary(results)] if results.plain else []
    if results.compares_builds and results.plain:
        found.append(tables.paired(results))
    if results.failures():
        found.append(tables.left_out(results))
    if results.plain and HAKMEM in results.allocators and len(results.allocators) > 1:
        found.append(tables.standing(results))
        found += [tables.losses(results, TIME, "time"), tables.losses(results, MEMORY, "peak resident set")]
    if results.outliers():
        found.append(tables.outliers(results))
    if since and since.workloads:
        found += [tables.since_means(since), tables.since_changes(since)]
    return found


def _own_tables(results: Results) -> list[tables.Table]:
    return [tables.one_workload(results, workload) for workload in results.workloads if workload.figures]


def _memory_figures(results: Results) -> list[tuple[str, str]]:
    """(key, title)"""
    return [(MEMORY, "peak resident set"), *((key, title) for key, title, _ in results.over_time())]


def _settings(results: Results) -> dict[str, str]:
    stored = results.stored
    choices = stored["choices"]
    return {
        "hakmem": f"{stored['hakmem']['version']}, commit {stored['hakmem']['commit'] or 'unknown'}",
        "begun": stored["begun"],
        "sizes": stored["size"],
        "repetitions": str(choices["repetitions"]),
        "limit for a run": f"{choices['timeout']:g} s",
        "seed of the order": str(choices["seed"]),
        "system calls": stored["strace_problem"] or "counted by strace",
        "left out by choice": ", ".join(stored.get("left_out", ())) or "no workload",
    }


def _commands(results: Results) -> list[dict]:
    size = results.stored["size"]
    return [
        {
            "workload": workload,
            "command": shlex.join(workload.command),
            "server": shlex.join(workload.server.command) if workload.server else "",
            "sizes": " ".join(f"{name}={value}" for name, value in workload.sizes(size).items()),
        }
        for workload in results.workloads
    ]


def _drawing() -> str:
    """The library that draws the plots, as a script that sets vegaEmbed."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")


def _inside_script(value: object) -> str:
    """JSON in which no text can end the script element."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def html(results: Results, since: Since | None = None) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(_TEMPLATE).render(
        results=results,
        groups={workload.name: workload.group for workload in results.workloads},
        headline=_headline_tables(results, since),
        own=_own_tables(results),
        data=_inside_script(page.data(results, since)),
        drawing=_drawing() if results.plain else "",
        scaling=bool(lines_of_scaling(results.plain)),
        method=METHOD,
        settings=_settings(results),
        commands=_commands(results),
    )


def markdown(results: Results, since: Since | None = None) -> str:
    head = ["# hakmem's benchmark\n", *(f"- {name}: {value}" for name, value in _settings(results).items())]
    head += [f"- {name}: {value}" for name, value in results.stored["machine"].items()]
    body = _headline_tables(results, since) + _own_tables(results)
    if results.plain:
        body.append(tables.ratios(results, TIME, "time"))
        body += [tables.mebibytes(results, *figure) for figure in _memory_figures(results)]
    return "\n".join(head) + "\n\n" + tables.markdown(body)


def write(stored: dict, output: Path, older: dict | None = None) -> Results:
    """Writes results.json, report.html and report.md to `output`, with the changes since an older run if one is given."""
    results = Results(stored)
    since = Since(results, older) if older else None
    files = {
        RESULTS: json.dumps(stored, indent=1) + "\n",
        "report.html": html(results, since),
        "report.md": markdown(results, since),
    }
    for name, text in files.items():
        write_file(str(output / name), text.encode(errors="replace"))
    return results
