"""The plots of the report, as SVG that can stand inside an HTML page."""

from __future__ import annotations

import io
import math
import re

import matplotlib
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from hakmem.bench.analysis import MEMORY, TIME, Results
from hakmem.bench.workloads import Workload, lines_of_scaling
from hakmem.runs import HAKMEM

matplotlib.use("svg")
matplotlib.rcParams |= {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}

_COLOURS = matplotlib.colormaps["tab10"].colors
_MARKS = "osD^vP*X<>"
_ROW_INCHES = 0.22
_DARKEST = math.log(2.5)  # a heat map's ends: 2.5 times better or worse


def _svg(figure: Figure, name: str) -> str:
    """Without prologue, metadata and namespaces: an HTML page needs none, and they hold addresses."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.id": name}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata=nothing)
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    return text.replace("<svg", f'<svg id="plot-{name}" role="img"', 1)


def _style(results: Results, allocator: str) -> dict:
    number = results.allocators.index(allocator)
    strong = allocator == HAKMEM
    return {
        "color": _COLOURS[3] if strong else _COLOURS[[0, 1, 2, 4, 5, 6, 7, 8, 9][number % 9]],
        "marker": _MARKS[number % len(_MARKS)],
        "zorder": 3 if strong else 2,
    }


def scatter(results: Results) -> str | None:
    """Time against memory, a point an allocator."""
    figure = Figure(figsize=(7, 4.5))
    axes = figure.add_subplot()
    for name in results.allocators:
        x, y = results.mean(name, TIME), results.mean(name, MEMORY)
        if x is None or y is None:
            return None
        axes.scatter([x], [y], s=70 if name == HAKMEM else 45, **_style(results, name))
        weight = "bold" if name == HAKMEM else "normal"
        axes.annotate(name, (x, y), xytext=(6, 4), textcoords="offset points", fontweight=weight)
    axes.set_xlabel(f"time, geometric mean of ratios to {results.reference}")
    axes.set_ylabel("peak resident set, the same")
    axes.margins(0.15)
    axes.grid(alpha=0.3)
    return _svg(figure, "scatter")


def heat_map(results: Results, key: str, name: str) -> str:
    """Workloads by allocators; blue is better than the reference, red is worse, grey has failed."""
    rows, columns = results.plain, results.allocators
    figure = Figure(figsize=(1.5 + 0.95 * len(columns), 0.8 + _ROW_INCHES * len(rows)))
    axes = figure.add_subplot()
    ratios = [[results.ratio(row.name, column, key) for column in columns] for row in rows]
    shades = [[math.nan if ratio is None else math.log(ratio) for ratio in line] for line in ratios]
    colours = matplotlib.colormaps["RdBu_r"].with_extremes(bad="0.8")
    axes.imshow(shades, cmap=colours, norm=TwoSlopeNorm(0, -_DARKEST, _DARKEST), aspect="auto")
    for y, line in enumerate(ratios):
        for x, ratio in enumerate(line):
            failed = results.failure(rows[y].name, columns[x])
            text = "failed" if failed else "–" if ratio is None else f"{ratio:.2f}"
            dark = ratio is not None and abs(math.log(ratio)) > 0.7 * _DARKEST
            axes.text(x, y, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    axes.set_xticks(range(len(columns)), columns, rotation=30, ha="left")
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    return _svg(figure, name)


def _scaling_title(line: list[Workload]) -> str:
    return f"{line[0].name} to {line[-1].name}"


def scaling(results: Results) -> str | None:
    """Time against threads, a small plot for each set of workloads that differ in threads alone."""
    lines = lines_of_scaling(results.plain)
    if not lines:
        return None
    across = min(3, len(lines))
    down = math.ceil(len(lines) / across)
    figure = Figure(figsize=(3.6 * across, 2.9 * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).flatten()
    for axes, line in zip(grid, lines, strict=False):
        for allocator in results.allocators:
            points = [(entry.threads, results.spread(entry.name, allocator, TIME)) for entry in line]
            points = [(threads, spread.median) for threads, spread in points if spread]
            if points:
                axes.plot(*zip(*points, strict=True), label=allocator, **_style(results, allocator))
        axes.set_title(_scaling_title(line), fontsize=9)
        axes.set_xticks([entry.threads for entry in line])
        axes.set_xlabel("threads")
        axes.set_ylabel("median time, s")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    for axes in grid[len(lines) :]:
        axes.set_visible(False)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, max(1, len(labels))))
    return _svg(figure, "scaling")
