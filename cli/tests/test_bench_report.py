"""The report of hakmem bench, opened in Chromium."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_bench import DIES_UNDER_PEER, MEASURES_ITSELF, SLOWER_UNDER_HAKMEM, Tree, bench_of
from test_bench import bench, tree  # noqa: F401, the fixtures

# Anything from elsewhere is refused by the policy, and the refusal is a line of the console.
POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:\">"
)
PROBE = """
<script>addEventListener("load", async () => {
  await window.drawn?.();
  const size = (node) => { const box = node.getBoundingClientRect(); return [box.width, box.height]; };
  const all = (what) => [...document.querySelectorAll(what)];
  const byId = (id) => document.getElementById(id);
  const texts = (what) => all(what).filter((node) => size(node)[1] > 0).map((node) => node.textContent.trim());
  const settle = async () => { await drawn(); };
  const click = async (what, text) => {
    all(what).find((node) => text === undefined || node.textContent === text || node.value === text).click();
    await settle();
  };
  const enter = async (id, value, event) => {
    byId(id).value = value;
    byId(id).dispatchEvent(new Event(event));
    await settle();
  };
  const matrix = () => all("#matrix tr").map((row) => [...row.cells].map((cell) => cell.textContent));
  const found = {
    headings: texts("h1, h2, h3"),
    plots: Object.fromEntries(all("figure").filter((node) => size(node)[1] > 0)
      .map((node) => [node.id, node.querySelector("svg") ? size(node.querySelector("svg")) : null])),
    ids: all("[id]").filter((node) => !node.closest("svg")).map((node) => node.id),
    bars: Object.fromEntries(all("figure").map((node) => [node.id, [...node.querySelectorAll(".mark-rule.role-mark line")]
      .map((line) => [Math.abs(line.getAttribute("x2")), Math.abs(line.getAttribute("y2"))])])),
    losses: texts("#losses-seconds tbody tr td:first-child"),
    loss: all("#losses-seconds td.loss").map((node) => getComputedStyle(node).backgroundColor),
    paper: getComputedStyle(document.body).backgroundColor,
    ink: all("#plot-scatter .role-axis-label text").map((node) => node.getAttribute("fill"))[0],
    failed: texts("td.failed"),
    resources: performance.getEntriesByType("resource").map((entry) => entry.name),
    links: all("nav a").map((node) => document.querySelector(node.getAttribute("href")) !== null),
    own: all("#one-itself td").map((node) => [node.textContent, node.className]),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    unnamed: all("button, input, select").filter((node) => !node.textContent.trim() && !node.labels?.length).length,
    unreachable: all("button, input, select, a[href]").filter((node) => node.tabIndex < 0).length,
  };
  const steps = {};
  const step = async (name, act) => { steps[name] = await act(); };
  /*steps*/
  found.steps = steps;
  const place = document.createElement("pre");
  place.id = "probe";
  place.textContent = JSON.stringify(found);
  document.body.append(place);
});</script>
"""
# Each does something to the page, by clicks and by what a keyboard enters, and tells what is shown then.
STEPS = """
  await step("whole", matrix);
  await step("best", () => all("#matrix tbody .best").map((node) => node.textContent));
  await step("explained", () => all("#matrix tbody td[title]").map((cell) => cell.title)[1]);
  const heading = (name) => click("#matrix thead button", name);
  await step("up", async () => { await heading("hakmem"); return matrix(); });
  await step("sorted", () => all("#matrix th[aria-sort]").map((node) => [node.textContent, node.getAttribute("aria-sort")]));
  await step("focus", async () => { all("#matrix thead button")[3].focus(); await heading("hakmem"); return document.activeElement.textContent; });
  await step("down", matrix);
  await step("text", async () => { await enter("text", "lost 2", "input"); return [matrix(), texts("#losses-seconds tbody td:first-child"), byId("shown").textContent]; });
  await step("family", async () => { await enter("text", "kin", "input"); return [matrix().map((row) => row[0]), texts("#losses-seconds tbody td:first-child")]; });
  await step("none", async () => { await enter("text", "nothing such", "input"); return [matrix().length, texts("#plot-scatter")]; });
  await step("reset", async () => { await click("#reset"); return [matrix(), byId("text").value]; });
  await step("group", async () => { await click("#groups input", "synthetic"); return matrix().map((row) => row[0]); });
  await step("hidden", async () => {
    await click("#reset");
    await click("#allocators input", "peer");
    return [matrix(), texts("#summary tbody td:first-child"), texts("#one-itself thead th"), texts("#plot-scatter .role-legend text"), byId("shown").textContent];
  });
  await step("other", async () => { await click("#reset"); await enter("way", "to hakmem", "change"); return matrix(); });
  await step("values", async () => { await enter("way", "values", "change"); return matrix(); });
  await step("memory", async () => { await enter("measure", "peak_rss_kib", "change"); return [matrix(), byId("matrix-note").textContent]; });
  await step("one", async () => { await click("#matrix tbody button", "lost-2"); return [byId("one-workload").value, texts("#plot-one-time .role-axis-label text")]; });
  await step("loss", async () => {
    for (const name of ["best peer", "workload", "workload"]) await click("#losses-seconds thead button", name);
    return [texts("#losses-seconds tbody td:first-child"), texts("#losses-seconds th[aria-sort]")];
  });
"""


def visit(page: str, folder: Path, *options: str, steps: str = "") -> tuple[dict, list[str]]:
    """What Chromium shows of the page, and the lines of its console."""
    file = folder / "probed.html"
    file.write_text(page.replace("<head>", "<head>" + POLICY + PROBE.replace("/*steps*/", steps), 1))
    always = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,900", "--enable-logging=stderr"]
    done = subprocess.run(
        ["chromium", *always, *options, "--virtual-time-budget=60000", f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    probe = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert probe, done.stderr
    return json.loads(html.unescape(probe[1])), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def reported(hakmem, tmp_path_factory) -> Tree:
    """A run and its report, which tests only read."""
    tree = Tree(tmp_path_factory.mktemp("reported"))
    for threads in ("1", "2"):
        tree.add(f"lost-{threads}", [*SLOWER_UNDER_HAKMEM, threads], f"threads = {threads}", family="kin")
    tree.add("dies", DIES_UNDER_PEER, group="program")
    tree.add("itself", MEASURES_ITSELF, "figures = true", group="figures")
    bench_of(hakmem, tree)("--brief", "--repetitions", "3", "--workloads", "*")
    return tree


@pytest.fixture
def page(reported) -> str:
    return (reported.output / "report.html").read_text()


def data_of(page: str) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', page)[1])


def test_what_is_kept_makes_the_same_report(page, reported, tmp_path):
    file, folder = tmp_path / "kept.json", tmp_path / "again"
    for arguments in (["pack", reported.output, file], ["report", file, folder]):
        subprocess.run([sys.executable, "-m", "hakmem.bench.kept", *arguments], check=True)
    assert str(reported.root) not in file.read_text()  # nothing of the machine's folders
    before, after = data_of(page), data_of((folder / "report.html").read_text())
    assert before.pop("courses").keys() >= {"lost-1"} and after.pop("courses").keys() == before["values"].keys()
    assert after == before and before["failures"]["dies"]["peer"] == "died of SIGSEGV: broken"
    assert (folder / "report.md").read_text() == (reported.output / "report.md").read_text()
    assert json.loads(file.read_text())["keys"].keys() >= {"run", "memory"}


def test_results_of_another_format_are_refused(tmp_path):
    (tmp_path / "kept.json").write_text('{"format": 0}')
    done = subprocess.run(
        [sys.executable, "-m", "hakmem.bench.kept", "report", tmp_path / "kept.json", tmp_path / "none"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "format 0" in done.stderr and not (tmp_path / "none").exists()


def test_the_report_opens_complete_and_alone(page, tmp_path):
    shown, console = visit(page, tmp_path)
    assert console == [] and shown["resources"] == []
    ours = re.sub(r'<script type="module">/\* Vega.*?</script>', "", page, flags=re.DOTALL)
    assert len(ours) < len(page) / 2  # the library for plots is in it, once
    assert not re.search(r"https?:|//\w", re.sub(r"<code>.*?</code>|data:image/[^\"']+|// .*", "", ours))
    for heading in ("Summary", "Wins and losses", "Where hakmem is not first: time", "Time against memory", "Throughput against threads"):
        assert heading in shown["headings"]
    plots = ["plot-course", "plot-one-memory", "plot-one-time", "plot-scaling", "plot-scatter"]
    assert sorted(shown["plots"]) == plots
    assert all(width > 150 and height > 80 for width, height in shown["plots"].values()), shown["plots"]
    assert all(shown["links"]) and len(set(shown["ids"])) == len(shown["ids"])
    assert shown["wide"] <= 0  # only tables and plots scroll sideways
    assert shown["unnamed"] == shown["unreachable"] == 0


def proportional(lengths: list[float], ranges: list[float]) -> None:
    """Bars are as long as the ranges, whatever the scale, in any order."""
    assert len(lengths) == len(ranges)
    ratios = [length / width for length, width in zip(sorted(lengths), sorted(ranges))]
    assert max(ratios) == pytest.approx(min(ratios), rel=0.01), (lengths, ranges)


def test_every_point_has_its_spread(page, tmp_path):
    shown, _ = visit(page, tmp_path)
    bars = shown["bars"]
    # Of three allocators: by time and by memory; with one and two threads; of one workload.
    assert [len(bars[f"plot-{name}"]) for name in ("scatter", "scaling", "one-time", "one-memory")] == [6, 6, 3, 3]
    across, up = bars["plot-scatter"][:3], bars["plot-scatter"][3:]
    assert [tall for _, tall in across] == [wide for wide, _ in up] == [0] * 3
    assert [0 < wide < 600 for wide, _ in across] == [False, True, True]  # what all are compared with is always 1
    stored = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["values"]
    times = {name: [entry["seconds"] for entry in stored[name].values()] for name in ("lost-1", "lost-2")}
    rates = [1 / min(values) - 1 / max(values) for rows in times.values() for values in rows]
    proportional([tall for _, tall in bars["plot-scaling"]], rates)
    chosen = times[shown["losses"][0]]  # the worst loss
    proportional([wide for wide, _ in bars["plot-one-time"]], [max(values) - min(values) for values in chosen])


def test_losses_and_failures_are_marked(page, tmp_path):
    shown, _ = visit(page, tmp_path)
    assert sorted(shown["losses"]) == ["lost-1", "lost-2"]
    assert shown["loss"] == ["rgb(255, 220, 214)"] * 2
    assert "died of SIGSEGV: broken" in shown["failed"] and "failed" in shown["failed"]


def test_it_follows_the_system_into_the_dark(page, tmp_path):
    bright, _ = visit(page, tmp_path)
    shown, console = visit(page, tmp_path, "--blink-settings=preferredColorScheme=0")
    assert (bright["paper"], bright["ink"].lower()) == ("rgb(255, 255, 255)", "#1a1a1a")
    assert console == [] and (shown["paper"], shown["ink"].lower()) == ("rgb(22, 24, 27)", "#e6e6e6")


def test_what_is_clicked_sorts_filters_and_hides(page, tmp_path):
    shown, console = visit(page, tmp_path, steps=STEPS)
    assert console == []
    steps = shown["steps"]
    head, *rows, foot = steps["whole"]
    assert head == ["workload", "group", "system", "hakmem", "peer"]
    assert [row[:3] for row in rows] == [["lost-1", "synthetic", "1.000"], ["lost-2", "synthetic", "1.000"], ["dies", "program", "1.000"]]
    assert rows[2][4] == "failed" and foot[0] == "geometric mean of 2" and foot[2] == "1.000" and float(foot[3]) > 2
    assert re.fullmatch(r"lost-1, hakmem, time: median .* m?s, minimum .* m?s, maximum .* m?s, runs: 3", steps["explained"])

    least = [min((cell for cell in row[2:] if cell != "failed"), key=float) for row in rows]
    assert len(steps["best"]) >= 3 and set(steps["best"]) == set(least)
    column = [float(row[3]) for row in rows]
    assert [float(row[3]) for row in steps["up"][1:-1]] == sorted(column)
    assert steps["sorted"] == [["hakmem", "ascending"]] and steps["focus"] == "hakmem"
    assert [float(row[3]) for row in steps["down"][1:-1]] == sorted(column, reverse=True)

    matrix, losses, said = steps["text"]
    assert [row[0] for row in matrix] == ["workload", "lost-2", "geometric mean of 1"] and losses == ["lost-2"]
    assert said == "1 of 3 workloads, 3 of 3 allocators"
    names, losses = steps["family"]
    assert sorted(names[1:-1]) == sorted(losses) == ["lost-1", "lost-2"]
    assert steps["none"] == [2, ["This choice leaves nothing to draw."]]
    assert steps["reset"] == [steps["whole"], ""]
    assert steps["group"] == ["workload", "dies", "geometric mean of 0"]

    matrix, summary, own, legend, said = steps["hidden"]
    assert matrix[0] == ["workload", "group", "system", "hakmem"] and matrix[-1][0] == "geometric mean of 3"
    assert summary == ["system", "hakmem", "best peer of each workload"] and "peer" not in own and "hakmem" in own
    assert "peer" not in legend and "hakmem" in legend and said == "3 of 3 workloads, 2 of 3 allocators"

    assert [row[3] for row in steps["other"][1:-1]] == ["1.000"] * 3
    assert all(row[3].endswith("s") for row in steps["values"][1:-1])
    matrix, note = steps["memory"]
    assert all(row[3].endswith(" MiB") for row in matrix[1:-1]) and note.startswith("peak resident set: medians")
    chosen, axis = steps["one"]
    assert chosen == "lost-2" and {"system", "hakmem", "peer"} <= set(axis)
    assert steps["loss"] == [["lost-2", "lost-1"], ["workload"]]


def test_changes_since_the_last_run_are_shown(bench, tree, tmp_path):  # noqa: F811
    tree.add("lost", SLOWER_UNDER_HAKMEM)
    bench("--brief", "--repetitions", "3")
    older, tree.output = tree.output, tree.root / "again"
    stored = json.loads((older / "results.json").read_text())
    for run in stored["runs"]:
        if run["allocator"] == "hakmem" and run["kind"] == "run":
            run["seconds"] *= 3
    (older / "results.json").write_text(json.dumps(stored))
    bench("--brief", "--repetitions", "3", "--since", str(older))
    look = """await step("since", async () => { await enter("way", "since", "change"); return [matrix(), texts("#since-changes td:first-child")]; });"""
    shown, console = visit((tree.output / "report.html").read_text(), tmp_path, steps=look)
    matrix, changes = shown["steps"]["since"]
    assert console == [] and changes[0] == "lost" and "Since the last run" in shown["headings"]
    assert matrix[1][3].endswith(" *") and 0.2 < float(matrix[1][3].split()[0]) < 0.5


def test_what_a_workload_measures_itself_has_a_table(page, tmp_path):
    shown, _ = visit(page, tmp_path)
    assert "Figures of their own" in shown["headings"] and "itself" in shown["headings"]
    cells = shown["own"]
    at = cells.index(["wait p99", "name"])
    assert cells[at + 1 : at + 5] == [["50 ns", ""], ["20 ns", "best"], ["50 ns", ""], ["0.400", "win"]]
    assert ["clock", "name"] in cells


def test_a_report_of_such_workloads_alone_opens(bench, tree, tmp_path):  # noqa: F811
    tree.add("itself", MEASURES_ITSELF, "figures = true", group="figures")
    bench("--brief", "--workloads", "itself")
    shown, console = visit((tree.output / "report.html").read_text(), tmp_path)
    assert console == [] and all(shown["links"]) and shown["plots"] == {}
    assert "Figures of their own" in shown["headings"] and "Summary" not in shown["headings"]


def test_a_report_without_any_figure_opens(bench, tree, tmp_path):  # noqa: F811
    tree.add("fails", ["false"])
    bench("--brief")
    shown, console = visit((tree.output / "report.html").read_text(), tmp_path)
    assert console == [] and all(shown["links"])
    assert shown["failed"].count("failed") == 3 and "exit 1" in shown["failed"]


def test_the_probe_sees_what_must_not_be(tmp_path):
    bad = '<html><head></head><body><img src="https://example.com/a.png"><script>absent()</script></body></html>'
    _, console = visit(bad, tmp_path)
    assert any("absent is not defined" in line for line in console)
    assert any("example.com" in line for line in console)
