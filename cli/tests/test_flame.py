"""hakmem profile --html: one page, opened in Chromium."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from itertools import cycle
from pathlib import Path

import pytest
from heap import Heap, mixed, of_code, pin, text_of
from processes import running

from hakmem import flame, insight_commands
from hakmem.diff import compare
from hakmem.snapshots import Snapshot
from hakmem.symbols import Symbols

SMALL = Heap({64: mixed({2: 30_000, 3: 10_000}, free=500), 48: mixed({2: 3})}, [(4, 3 << 20)])

SHRUNK = Heap(SMALL.owners, [(5, 2 << 20)])

# Anything from elsewhere is refused by the policy, and the refusal is a line of the console.
POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'\">"
)
PROBE = """
<script>addEventListener("load", () => {
  const boxes = () => [...document.querySelectorAll("#graph button")].map((node) => {
    const place = node.getBoundingClientRect();
    return { name: node.textContent, width: place.width, top: place.top, found: node.classList.contains("found") };
  });
  const say = { whole: boxes(), rows: [...document.querySelectorAll("#rows tr")].map((row) => row.textContent) };
  say.heading = document.querySelector("#heading").textContent;
  [...document.querySelectorAll("#graph button")].find((node) => node.textContent === "program+0x103f").click();
  say.zoomed = boxes();
  document.querySelector("#reset").click();
  say.again = boxes();
  const search = document.querySelector("#search");
  search.value = "0X103F";
  search.dispatchEvent(new Event("input"));
  say.searched = boxes();
  say.hits = document.querySelector("#hits").textContent;
  const view = document.querySelector("#view");
  say.views = [...view.options].map((option) => option.value);
  search.value = "";
  search.dispatchEvent(new Event("input"));
  view.value = "pinned";
  view.dispatchEvent(new Event("change"));
  say.pinned = boxes();
  say.pinnedRows = [...document.querySelectorAll("#rows tr")].map((row) => row.textContent);
  say.pinnedTitles = [...document.querySelectorAll("#titles th")].map((title) => title.textContent);
  const other = (name) => {
    view.value = name;
    view.dispatchEvent(new Event("change"));
    const buttons = [...document.querySelectorAll("#graph button")];
    return {
      boxes: boxes(),
      hues: Object.fromEntries(buttons.map((node) => [node.textContent, node.style.background])),
      heading: document.querySelector("#heading").textContent,
      rows: [...document.querySelectorAll("#rows tr")].map((row) => row.textContent),
    };
  };
  say.growth = other("growth");
  say.lifetimes = other("lifetimes");
  say.verdict = document.querySelector("#verdict").textContent;
  say.made = [...document.querySelectorAll("#made tbody tr")].map((row) => row.textContent);
  say.resources = performance.getEntriesByType("resource").length;
  const place = document.createElement("pre");
  place.id = "probe";
  place.textContent = JSON.stringify(say);
  document.body.append(place);
});</script>
"""


@pytest.fixture
def taken():
    found = pin(SMALL.sampled(1), SMALL, every=2)
    found.mappings = [of_code("/opt/program")]
    return found


class Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.script = ""

    def handle_starttag(self, tag, attributes) -> None:
        assert not {"src", "href"} & {name for name, _ in attributes}
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if self.open and self.open[-1] == "script":
            self.script += data


def data_of(page: str) -> dict:
    outline = Outline()
    outline.feed(page)
    outline.close()
    assert outline.open == []
    return json.loads(re.search(r"^const data = (.*);$", outline.script, re.MULTILINE)[1])


def test_page_is_whole_and_sums(taken):
    data = data_of(flame.page(taken, Symbols(taken)))
    tree = data["views"]["live"]["tree"]
    assert tree["v"] == taken.live_bytes
    assert sum(each["v"] for each in tree["c"]) == tree["v"]
    main = tree["c"][0]
    assert [each["n"] for each in main["c"]] == ["program+0x3f", "program+0x1f", "program+0x2f"]
    rows = data["views"]["live"]["rows"]
    assert sorted(row["cells"][1] == "" for row in rows)[-2:] == [False, True]  # not sampled


def test_page_has_a_view_of_what_is_pinned(taken):
    view = data_of(flame.page(taken, Symbols(taken)))["views"]["pinned"]
    assert view["tree"]["n"] == "pinned"
    assert view["tree"]["v"] == sum(stratum.waste for stratum in taken.strata)
    assert [each["n"] for each in view["tree"]["c"][0]["c"]] == ["program+0x1f", "program+0x2f"]
    assert len(view["titles"]) == len(view["rows"][0]["cells"]) + 1
    assert view["heading"][0].startswith("pinned ")


def test_page_of_an_older_snapshot_has_no_such_view(taken):
    taken.strata, taken.tracked = [], []
    assert list(data_of(flame.page(taken, Symbols(taken)))["views"]) == ["live", "lifetimes"]


def test_ages_sum_to_what_is_live(taken):
    for sample, age in zip(taken.samples, cycle([0.5, 59.9, 60.0, 90_000.0])):
        sample.age = age if sample.size == 64 else sample.age
    view = data_of(flame.page(taken, Symbols(taken)))["views"]["lifetimes"]
    tree = view["tree"]
    assert tree["v"] == taken.live_bytes == sum(each["v"] for each in tree["c"])
    names = ["under 1 s", "1 s to 10 s", "10 s to 1 min", "1 min to 10 min", "1 d and more"]
    assert [each["n"] for each in tree["c"]] == [*names, "(not sampled)"]
    held = {each["n"]: each["v"] for each in tree["c"]}
    assert held["1 s to 10 s"] == 3 << 20  # the large block
    small = [held[name] for name in names if name != "1 s to 10 s"]
    assert min(small) > 0.7 * max(small)
    assert tree["c"][1]["c"][0]["c"][0]["n"] == "program+0x3f"
    assert "not the lifetime of freed blocks" in view["heading"][0]
    assert view["titles"][3:-1] == names
    cells = view["rows"][0]["cells"]
    assert cells == ["3.0 MiB", "1", "5.0 s", "", "100.0 %", "", "", ""]
    for row in view["rows"][1:]:
        assert sum(float(cell[:-2]) for cell in row["cells"][3:] if cell) == pytest.approx(100, abs=0.3)


def test_growth_is_what_changed_beyond_chance(taken):
    before = SHRUNK.snapshot(SHRUNK.marks(1), 1)
    before.mappings = taken.mappings
    difference = compare(before, taken)
    view = data_of(flame.page(taken, Symbols(taken), difference=difference))["views"]["growth"]
    more, less = view["tree"]["c"]
    assert (more["n"], more["v"], less["n"], less["v"]) == ("more", 3 << 20, "less", 2 << 20)
    assert view["tree"]["v"] == 5 << 20
    assert [each["c"][0]["n"] for each in (more["c"][0], less["c"][0])] == ["program+0x3f", "program+0x4f"]
    assert [row["cells"][0] for row in view["rows"]] == ["+3.0 MiB", "-2.0 MiB"]
    assert view["heading"][-1] == "beyond chance: 2 sites"
    assert len(view["titles"]) == len(view["rows"][0]["cells"]) + 1
    same = data_of(flame.page(taken, Symbols(taken), difference=compare(taken, taken)))["views"]["growth"]
    assert same["tree"] == {"n": "growth", "v": 0} and same["rows"] == []
    assert same["heading"][-1] == "no site changed beyond chance"


def test_growth_and_verdict_of_a_process(hakmem, tmp_path):
    """Blocks of a MiB come while it is looked at."""
    out = tmp_path / "heap.html"
    grow = "for _ in range(2000):\n held.append(bytearray(1 << 20))\n time.sleep(.05)"
    code = f"import time\nprint('ready', flush=True)\nheld = []\n{grow}"
    with running(sys.executable, "-c", code) as process:
        done = hakmem("profile", str(process.pid), "--html", str(out), "--interval", "1")
    assert done.returncode == 0, done.stderr
    data = data_of(out.read_text())
    (more,) = data["views"]["growth"]["tree"]["c"]
    assert more["n"] == "more" and more["v"] >= 1 << 20
    assert "two snapshots of one process" in data["views"]["growth"]["heading"][1]
    assert re.search(r"\d MiB", data["verdict"])
    assert data["made"]["titles"] == ["", "resident", "share", "counted"]
    shares = [float(row[2][:-2]) for row in data["made"]["rows"] if row[2]]
    assert sum(shares) == pytest.approx(100, abs=1)


def test_an_interval_lies_between_the_two_looks(monkeypatch):
    steps = []
    monkeypatch.setattr(insight_commands, "taken", lambda target: steps.append(target) or Snapshot())
    monkeypatch.setattr(insight_commands.time, "sleep", steps.append)
    assert insight_commands._before("4711", None, 1.5) == Snapshot()
    assert steps == ["4711", 1.5]


def test_what_does_not_go_together_is_told(hakmem, taken, tmp_path):
    file, out = str(tmp_path / "heap"), str(tmp_path / "out")
    Path(file).write_text(text_of(taken))
    for arguments, why in (
        (["--since", file], "need --html"),
        (["--interval", "1"], "need --html"),
        (["--since", file, "--interval", "1", "--html", out], "don't go together"),
        (["--interval", "1", "--html", out], "a file does not change"),
    ):
        done = hakmem("profile", file, *arguments)
        assert done.returncode != 0 and why in done.stderr
    assert not Path(out).exists()


def test_names_cannot_end_the_script(taken):
    taken.mappings = [of_code("/opt/</script><script>alert(1)</script>")]
    assert "script>alert" in json.dumps(data_of(flame.page(taken, Symbols(taken))))


def test_page_works_without_a_network(hakmem, taken, tmp_path):
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("no chromium")
    taken.mappings = [of_code("/opt/program", offset=0x1000)]
    file, before, out, probed = (tmp_path / name for name in ("heap", "before", "heap.html", "probed.html"))
    file.write_text(text_of(taken))
    earlier = SHRUNK.snapshot(SHRUNK.marks(1), 1)
    earlier.mappings = taken.mappings
    before.write_text(text_of(earlier))
    assert hakmem("profile", str(file), "--html", str(out), "--since", str(before)).returncode == 0
    probed.write_text(out.read_text().replace("<head>", "<head>" + POLICY + PROBE, 1))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,900", "--enable-logging=stderr"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [chromium, *options, profile, "--dump-dom", probed.as_uri()], capture_output=True, text=True, timeout=120
    )
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    say = json.loads(html.unescape(found[1]))
    assert say["resources"] == 0
    assert "one for each 128.0 KiB" in say["heading"]
    whole = {box["name"]: box for box in say["whole"]}
    assert whole["program+0x103f"]["width"] == pytest.approx(
        whole["live"]["width"] * (3 << 20) / taken.live_bytes, abs=1
    )
    assert whole["live"]["top"] < whole["program+0x100f"]["top"] < whole["program+0x103f"]["top"]
    zoomed = {box["name"]: box["width"] for box in say["zoomed"]}
    assert zoomed == {name: whole["live"]["width"] for name in ("live", "program+0x100f", "program+0x103f")}
    assert say["again"] == say["whole"]
    assert [box["name"] for box in say["searched"] if box["found"]] == ["program+0x103f"]
    assert say["hits"].startswith("3.0 MiB")
    assert say["rows"][0].startswith("3.0 MiB0 B")
    assert say["views"] == ["live", "pinned", "growth", "lifetimes"]
    assert say["verdict"] == "what is resident, and why, is known only for a running process"
    assert say["made"][0].startswith("live") and f"{taken.live_bytes / (1 << 20):.1f} MiB" in say["made"][0]
    growth = {box["name"]: box for box in say["growth"]["boxes"]}
    assert growth["more"]["width"] == pytest.approx(1.5 * growth["less"]["width"], abs=1)
    assert growth["program+0x104f"]["width"] == growth["less"]["width"]
    assert [row[:9] for row in say["growth"]["rows"]] == ["+3.0 MiB0", "-2.0 MiB0"]
    hues = say["growth"]["hues"]
    red, _, blue = (int(part) for part in re.findall(r"\d+", hues["more"])[:3])
    assert red > blue
    red, _, blue = (int(part) for part in re.findall(r"\d+", hues["less"])[:3])
    assert red < blue
    old = {box["name"]: box for box in say["lifetimes"]["boxes"]}
    assert old["1 s to 10 s"]["width"] == pytest.approx(old["lifetimes"]["width"] * (3 << 20) / taken.live_bytes, abs=1)
    assert "how long ago the live blocks were allocated" in say["lifetimes"]["heading"]
    pinned = {box["name"]: box for box in say["pinned"]}
    assert list(pinned)[:2] == ["pinned", "program+0x100f"]
    assert "program+0x103f" not in pinned  # a large block
    assert pinned["program+0x101f"]["width"] > pinned["program+0x102f"]["width"] > 0
    assert say["pinnedTitles"][0] == "pinned"
    assert len(say["pinnedRows"]) == 2
