"""The command `hakmem bench`."""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import sys
import time
from pathlib import Path

import click
from rich import box
from rich.table import Table

from hakmem import render
from hakmem.bench import plan as plans
from hakmem.bench import setting_up, workloads
from hakmem.bench.allocators import MANIFEST
from hakmem.bench.journal import FILE as JOURNAL
from hakmem.bench.journal import RESULTS, Journal, stored_plan
from hakmem.bench.plan import Choices, Places, Plan, Step
from hakmem.bench.progress import Steps
from hakmem.bench.runner import Runner, RunFailed, strace_problem
from hakmem.command_line import Seconds
from hakmem.errors import Failure
from hakmem.runs import HAKMEM

_INTERRUPTED = 130
_KINDS = {"run": "", "memory": " (memory over time)", "calls": " (system calls)"}
_FEW = 3  # up to this many workloads are shown one by one at the end


class _Words(click.ParamType):
    """Words separated by commas."""

    name = "words"

    def convert(self, value, param, context) -> list[str]:
        return value if isinstance(value, list) else [word for word in value.replace(",", " ").split() if word]


class _Numbers(_Words):
    name = "numbers"

    def convert(self, value, param, context) -> list[int]:
        try:
            return [int(word) for word in super().convert(value, param, context)]
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers", param, context)


def _places(root: str | None, build: str | None, output: str | None, resume: bool) -> Places:
    start = Path(root).resolve() if root else Path.cwd()
    found = next(
        (place for place in [start, *([] if root else start.parents)] if (place / workloads.FILE).is_file()), None
    )
    if not found:
        where = start if root else f"{start} or above"
        raise Failure(f"no {workloads.FILE} in {where}: the benchmark runs in hakmem's source tree; give it with --root")
    build_path = Path(build).resolve() if build else found / "build"
    if output:
        return Places(found, build_path, Path(output).resolve())
    results = Places(found, build_path, build_path).results
    if not resume:
        return Places(found, build_path, results / time.strftime("%Y%m%d-%H%M%S"))
    there = sorted(place.parent for place in results.glob(f"*/{JOURNAL}"))
    if not there:
        raise Failure(f"{results} holds no benchmark to resume")
    stopped = [place for place in there if not (place / RESULTS).exists()]
    return Places(found, build_path, (stopped or there)[-1])


def _older(places: Places, named: str | None, size: str) -> dict | None:
    """The results to compare with: those in a named directory, or the newest older ones."""
    from hakmem.bench import since  # here, since its packages take a second to load, and only hakmem[bench] installs them

    folder = Path(named) if named else since.newest(places.results, places.output, size)
    return since.read(folder) if folder else None


def _choices(context: click.Context, places: Places, resume: bool, given: dict) -> Choices:
    if resume:
        for name in given:
            if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--resume keeps the choices made before; --{name} can't be changed")
        try:
            return Choices(**stored_plan(places.output)["choices"])
        except (KeyError, TypeError):
            raise Failure(f"{places.output} can't be resumed: another version of hakmem began it") from None
    library = Path(given["library"] or places.build / "libhakmem.so").resolve()
    if not library.is_file():
        raise Failure(f"the library {library} does not exist; build it with `make lib`, or give one with --library")
    repetitions = given["repetitions"] or (1 if given["brief"] else 5)
    baseline = str(Path(given["baseline"]).resolve()) if given["baseline"] else None
    seed = secrets.randbelow(10**6) if given["seed"] is None else given["seed"]
    settled = {"library": str(library), "repetitions": repetitions, "baseline": baseline, "seed": seed}
    return Choices(**given | settled)


def _listing(plan: Plan) -> list[Table]:
    listed = Table(box=box.SIMPLE_HEAD)
    for heading in ("workload", "group", "family", "threads", "what it does"):
        listed.add_column(heading, overflow="fold")
    for entry in plan.workloads:
        listed.add_row(entry.name, entry.group, entry.family, str(entry.threads or ""), entry.about)
    names = Table(box=box.SIMPLE_HEAD)
    for heading in ("allocator", "version", "source"):
        names.add_column(heading, overflow="fold")
    for entry in plan.allocators:
        names.add_row(entry.name, entry.version, entry.source)
    return [listed, names]


# ---- Running ----


def _perform(runner: Runner, step: Step, problem: str | None) -> dict:
    """Runs the step, and returns its journal entry."""
    entry = {
        "kind": step.kind,
        "workload": step.workload.name,
        "allocator": step.allocator.name,
        "repetition": step.repetition,
        "failure": problem,
    }
    if problem:
        return entry
    act = {"run": runner.measure, "memory": runner.watch_memory, "calls": runner.count_calls}
    try:
        return entry | act[step.kind](step.workload, step.allocator)
    except RunFailed as failed:
        return entry | {"failure": str(failed)}


def _outcome(entry: dict) -> str:
    if entry["failure"]:
        return f"failed: {entry['failure']}"
    if entry["kind"] == "calls":
        return f"{entry['system_calls']} system calls"
    if entry["kind"] == "memory":
        if not entry.get("samples"):
            return "too short to be sampled"
        return f"{entry['mean_rss_kib'] / 1024:.1f} MiB on average, {entry['end_rss_kib'] / 1024:.1f} MiB at the end"
    return f"{entry['seconds']:.3f} s, {entry['peak_rss_kib'] / 1024:.1f} MiB"


def _first_result(plan: Plan, journal: Journal, step: Step) -> str | None:
    """How hakmem compares, once every allocator has had its first run on the workload."""
    name = step.workload.name
    runs = {one.name: journal.entries.get(("run", name, one.name, 0)) for one in plan.allocators}
    if step.kind != "run" or step.repetition or step.workload.figures or not all(runs.values()):
        return None
    seconds = {one: run["seconds"] for one, run in runs.items() if not run["failure"]}
    mine = seconds.pop(HAKMEM, None)
    if not mine or not seconds:
        return None
    best = min(seconds, key=seconds.__getitem__)
    beside = [*([plan.reference] if plan.reference in seconds and plan.reference != best else []), best]
    ratios = ", ".join(f"{mine / seconds[one]:.2f} of {one}'s" for one in beside)
    return f"{name}, first runs: {HAKMEM} {mine:.3f} s, {ratios}, the best of the others"


def _run_all(runner: Runner, plan: Plan, journal: Journal) -> None:
    problems: dict[str, str | None] = {}  # why a workload can't run at all, once known

    def prepared(step: Step) -> str | None:
        name = step.workload.name
        if name not in problems:
            problems[name] = None
            try:
                runner.prepare(step.workload)
            except RunFailed as failed:
                problems[name] = str(failed)
        return problems[name]

    steps = list(plan.steps(with_calls=not journal.plan["strace_problem"]))
    left = [step for step in steps if step.key not in journal.entries]
    with Steps(len(steps), len(steps) - len(left)) as progress:
        for step in left:
            title = f"{step.workload.name} {step.allocator.name}{_KINDS[step.kind]}"
            progress.begin(title)
            if journal.failed(step.workload.name, step.allocator.name):
                progress.end(f"{title}: skipped, since it has failed before")
                continue
            entry = _perform(runner, step, prepared(step))
            journal.add(entry)
            progress.end(f"{title}: {_outcome(entry)}", keep=bool(entry["failure"]))
            told = _first_result(plan, journal, step)
            if told:
                progress.tell(told)


def _run_until_stopped(plan: Plan, journal: Journal) -> None:
    """Runs all steps. SIGTERM stops this as ctrl-C does: no process is left, and every finished run is kept."""
    runner = Runner(plan)
    try:
        with runner.heeding_signals():
            _run_all(runner, plan, journal)
    except KeyboardInterrupt:
        print(f"hakmem: stopped; hakmem bench --resume --output {plan.places.output} continues it", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    finally:
        shutil.rmtree(plan.places.output / "scratch", ignore_errors=True)


def _summarise(results, output: Path) -> None:
    from hakmem.bench import tables

    sources = [tables.summary(results)] if results.plain else []
    sources += [tables.paired(results)] if results.compares_builds and results.plain else []
    alone = len(results.workloads) <= _FEW
    sources += [tables.one_workload(results, entry) for entry in results.workloads if entry.figures or alone]
    for source in sources:
        shown = Table(title=source.title, title_justify="left", caption=source.note, caption_justify="left")
        for number, heading in enumerate(source.headings):
            shown.add_column(heading, justify="right" if number > 0 else "left")
        for row in source.rows:
            shown.add_row(*(cell.text for cell in row))
        render.print_wide(shown)
    for workload, allocator, reason in results.failures():
        print(f"hakmem: {workload} failed under {allocator}: {reason}", file=sys.stderr)
    left_out = results.stored.get("left_out")
    if left_out:
        names = ", ".join(left_out)
        print(f"hakmem: left out, so neither passed nor failed: {len(left_out)}: {names}", file=sys.stderr)
    click.echo(f"{output / 'report.html'}\n{output / 'report.md'}\n{output / 'results.json'}")


def _need_report_packages() -> None:
    missing = [name for name in ("jinja2", "numpy", "scipy", "vl_convert") if not importlib.util.find_spec(name)]
    if missing:
        raise Failure(f"the report needs {', '.join(missing)}: pip install 'hakmem[bench]'")


@click.command()
@click.option(
    "--workloads",
    type=_Words(),
    default="",
    metavar="NAMES",
    help="Names, families, groups, or patterns of them.  [default: all but the group figures]",
)
@click.option("--without", type=_Words(), default="", metavar="NAMES", help="Leave out these workloads; takes patterns too.")
@click.option("--allocators", type=_Words(), default="", metavar="NAMES", help="Only these allocators.")
@click.option("--threads", type=_Numbers(), default="", metavar="N,...", help="Only workloads with these numbers of threads.")
@click.option("--repetitions", type=click.IntRange(min=1), help="Runs of each workload under each allocator.  [default: 5; 1 with --brief]")
@click.option("--brief", is_flag=True, help="Use small sizes, only to check that everything runs: the figures mean nothing.")
@click.option(
    "--timeout", type=Seconds(min=0, min_open=True), default=120, show_default=True, help="Time limit of a run, in seconds."
)
@click.option("--seed", type=int, help="Seed for the order in which allocators run.  [default: a random one, recorded]")
@click.option("--library", metavar="FILE", help="The hakmem library to measure.  [default: libhakmem.so in --build]")
@click.option("--baseline", metavar="FILE", help="Compare hakmem only with this other build of it.")
@click.option("--resume", is_flag=True, help="Resume the benchmark in --output.  [default: the newest that was stopped]")
@click.option("--output", metavar="DIR", help="Where the results go.  [default: below BUILD/bench/results]")
@click.option("--root", metavar="DIR", help="hakmem's source tree.  [default: the one around this directory]")
@click.option("--build", metavar="DIR", help="The directory of its build.  [default: ROOT/build]")
@click.option("--since", "named", metavar="DIR", help="Show changes since these results.  [default: the newest older ones]")
@click.option("--set-up", is_flag=True, help="First install the packages and build the peers that this run needs.")
@click.option("--check-failures", is_flag=True, help="Exit with 1 if a workload failed with hakmem or the reference.")
@click.option("--list", "list_only", is_flag=True, help="List workloads and allocators, and run nothing.")
@click.pass_context
def bench(context, resume, output, root, build, named, set_up, check_failures, list_only, **given) -> None:
    """Run the workloads of bench/workloads.toml under every allocator, and write a report.

    Words in a list are separated by commas. Ctrl-C stops the benchmark; --resume continues it.
    """
    places = _places(root, build, output, resume)
    choices = _choices(context, places, resume, given)
    if set_up and not list_only:
        asked = setting_up.chosen(choices, places.root)
        if not resume:
            try:
                setting_up.first_look(choices, places, asked)
            except KeyboardInterrupt:
                sys.exit(_INTERRUPTED)
        setting_up.bring(choices, places, asked)
    plan = plans.make(choices, places)
    if list_only:
        render.print_all(_listing(plan))
        return
    _need_report_packages()
    older = _older(places, named, choices.size)
    if not (places.build / MANIFEST).exists() and not plan.choices.allocators and not plan.choices.baseline:
        print(f"hakmem: no peers, since there is no {places.build / MANIFEST}; `make peers` builds them", file=sys.stderr)
    begun = {"begun": time.strftime("%Y-%m-%d %H:%M %Z"), "strace_problem": strace_problem()}
    journal = Journal(places.output, plan.as_json() | begun, resume)
    _run_until_stopped(plan, journal)

    from hakmem.bench import report  # here, since it takes a second to load

    results = report.write(journal.as_json(), places.output, older)
    _summarise(results, places.output)
    if check_failures and any(name in (HAKMEM, results.reference) for _, name, _ in results.failures()):
        sys.exit(1)
