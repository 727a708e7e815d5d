"""The report of hakmem bench, opened in Chromium."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path

import pytest
from test_bench import DIES_UNDER_PEER, MEASURES_ITSELF, SLOWER_UNDER_HAKMEM, bench, tree  # noqa: F401, the fixtures

# Anything from elsewhere is refused by the policy, and the refusal is a line of the console.
POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:\">"
)
PROBE = """
<script>addEventListener("load", () => {
  const size = (node) => { const box = node.getBoundingClientRect(); return [box.width, box.height]; };
  const all = (what) => [...document.querySelectorAll(what)];
  const found = {
    headings: all("h1, h2, h3").filter((node) => size(node)[1] > 0).map((node) => node.textContent),
    plots: Object.fromEntries(all("svg").map((node) => [node.id, size(node)])),
    ids: all("[id]").filter((node) => !node.closest("svg")).map((node) => node.id),
    texts: all("svg text").filter((node) => size(node)[0] > 0).map((node) => node.textContent.trim()),
    losses: all("#losses-seconds tbody tr td:first-child").map((node) => node.textContent),
    loss: all("#losses-seconds td.loss").map((node) => getComputedStyle(node).backgroundColor),
    failed: all("td.failed").map((node) => node.textContent),
    resources: performance.getEntriesByType("resource").map((entry) => entry.name),
    links: all("nav a").map((node) => document.querySelector(node.getAttribute("href")) !== null),
    own: all("#one-itself td").map((node) => [node.textContent, node.className]),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
  const place = document.createElement("pre");
  place.id = "probe";
  place.textContent = JSON.stringify(found);
  document.body.append(place);
});</script>
"""


def visit(page: str, folder: Path) -> tuple[dict, list[str]]:
    """What Chromium shows of the page, and the lines of its console."""
    file = folder / "probed.html"
    file.write_text(page.replace("<head>", "<head>" + POLICY + PROBE, 1))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,900", "--enable-logging=stderr"]
    done = subprocess.run(
        ["chromium", *options, f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    probe = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert probe, done.stderr
    return json.loads(html.unescape(probe[1])), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture
def page(bench, tree) -> str:  # noqa: F811
    for threads in ("1", "2"):
        tree.add(f"lost-{threads}", [*SLOWER_UNDER_HAKMEM, threads], f"threads = {threads}", family="lost")
    tree.add("dies", DIES_UNDER_PEER)
    tree.add("itself", MEASURES_ITSELF, "figures = true", group="figures")
    bench("--brief", "--workloads", "*")
    return (tree.output / "report.html").read_text()


def test_the_report_opens_complete_and_alone(page, tmp_path):
    shown, console = visit(page, tmp_path)
    assert console == [] and shown["resources"] == []
    assert not re.search(r"https?:|//\w", re.sub(r"<code>.*?</code>|data:image/[^\"']+", "", page))
    for heading in ("Summary", "Where hakmem is not first: time", "Time against memory", "Scaling with threads"):
        assert heading in shown["headings"]
    assert sorted(shown["plots"]) == ["plot-heat-memory", "plot-heat-time", "plot-scaling", "plot-scatter"]
    assert all(width > 150 and height > 80 for width, height in shown["plots"].values()), shown["plots"]
    assert {"hakmem", "peer", "lost-1", "failed"} <= set(shown["texts"])
    assert all(shown["links"]) and len(set(shown["ids"])) == len(shown["ids"])
    assert shown["wide"] <= 0  # only tables and plots scroll sideways


def test_losses_and_failures_are_marked(page, tmp_path):
    shown, _ = visit(page, tmp_path)
    assert sorted(shown["losses"]) == ["lost-1", "lost-2"]
    assert shown["loss"] == ["rgb(255, 220, 214)"] * 2
    assert "died of SIGSEGV: broken" in shown["failed"] and "failed" in shown["failed"]


def test_what_a_workload_measures_itself_has_a_table(page, tmp_path):
    shown, _ = visit(page, tmp_path)
    assert "Figures of their own" in shown["headings"] and "itself" in shown["headings"]
    cells = shown["own"]
    at = cells.index(["wait p99", "name"])
    assert cells[at + 1 : at + 5] == [["50 ns", ""], ["20 ns", "best"], ["50 ns", ""], ["0.400", "win"]]
    assert ["clock", "name"] in cells and "itself" not in shown["texts"]  # no plot shows it


def test_a_report_of_such_workloads_alone_opens(bench, tree, tmp_path):  # noqa: F811
    tree.add("itself", MEASURES_ITSELF, "figures = true", group="figures")
    bench("--brief", "--workloads", "itself")
    shown, console = visit((tree.output / "report.html").read_text(), tmp_path)
    assert console == [] and all(shown["links"]) and shown["plots"] == {}
    assert "Figures of their own" in shown["headings"] and "Summary" not in shown["headings"]


def test_the_probe_sees_what_must_not_be(tmp_path):
    bad = '<html><head></head><body><img src="https://example.com/a.png"><script>absent()</script></body></html>'
    _, console = visit(bad, tmp_path)
    assert any("absent is not defined" in line for line in console)
    assert any("example.com" in line for line in console)
