"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const all = (what, within = document) => [...within.querySelectorAll(what)];
const NONE = "–";

// ---- Figures ----

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};
const spreadOf = (values) => ({ median: median(values), least: Math.min(...values), most: Math.max(...values), runs: values.length });
const valuesOf = (workload, allocator, key) => data.values[workload]?.[allocator]?.[key];
const spread = (workload, allocator, key) => {
  const values = valuesOf(workload, allocator, key);
  return values ? spreadOf(values) : null;
};
const ratio = (workload, allocator, key, base) => {
  const mine = spread(workload, allocator, key), other = spread(workload, base, key);
  return mine && other && other.median ? mine.median / other.median : null;
};
const geometricMean = (values) => {
  if (!values.length || values.some((value) => !value)) return null;
  return Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
};
const least = (values) => values.reduce((found, value) => (value !== null && (found === null || value < found) ? value : found), null);
const ratioText = (value) => (value === null ? NONE : value.toFixed(value < 10 ? 3 : 1));

// The factor and the unit in which values about as large as one read well.
const scaleOf = (value, unit) => {
  if (unit === "s") return value >= 1 ? { factor: 1, digits: 3, unit: "s" } : { factor: 1000, digits: 1, unit: "ms" };
  if (unit === "KiB") return { factor: 1 / 1024, digits: 1, unit: "MiB" };
  return { factor: 1, digits: 0, unit: "" };
};
const valueText = (value, scale) => {
  const digits = { minimumFractionDigits: scale.digits, maximumFractionDigits: scale.digits };
  return (value * scale.factor).toLocaleString("en", digits) + (scale.unit && " " + scale.unit);
};

// ---- What the reader chose ----

const state = {
  text: "", groups: new Set(), hidden: new Set(),
  measure: data.measures[0]?.key, shown: "to " + data.reference,
  sort: { column: null, up: true }, workload: null,
};
const allocators = () => data.allocators.filter((name) => !state.hidden.has(name));
const matches = (name, group) => !state.groups.has(group)
  && state.text.toLowerCase().split(/\s+/).every((word) => name.toLowerCase().includes(word));
const workloads = () => data.workloads.filter(({ name, group, family }) => matches(name + " " + family, group));
const base = () => (state.shown.startsWith("to ") ? state.shown.slice(3) : data.reference);
const measure = () => data.measures.find(({ key }) => key === state.measure);

// ---- Tables that came with the page: sorted, filtered, their allocators hidden ----

const number = (cell) => {
  const found = parseFloat(cell.dataset.value ?? cell.textContent.replace(/[~,]/g, ""));
  return Number.isNaN(found) ? null : found;
};
// What has no figure comes last, whichever way round.
const compare = (one, other, up) => {
  if (one === other) return 0;
  if (one === null) return 1;
  if (other === null) return -1;
  const order = typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other;
  return up ? order : -order;
};
const mark = (headings, column, up) => headings.forEach((heading, at) => {
  if (at === column) heading.setAttribute("aria-sort", up ? "ascending" : "descending");
  else heading.removeAttribute("aria-sort");
});
const sortable = (table) => {
  const headings = all("thead th", table);
  headings.forEach((heading, column) => all("button", heading).forEach((button) => button.addEventListener("click", () => {
    const up = heading.getAttribute("aria-sort") !== "ascending", body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, value: number(row.cells[column]), text: row.cells[column].textContent }));
    const numeric = column > 0 && rows.some(({ value }) => value !== null);
    rows.sort((one, other) => (numeric ? compare(one.value, other.value, up) : compare(one.text, other.text, up)));
    body.append(...rows.map(({ row }) => row));
    mark(headings, column, up);
  })));
};
const filterTables = () => {
  const families = Object.fromEntries(data.workloads.map(({ name, family }) => [name, family]));
  all("tr[data-workload]").forEach((row) => {
    const { workload, group } = row.dataset;
    row.hidden = !matches(workload + " " + (families[workload] ?? ""), group);
  });
  all("tr[data-allocator]").forEach((row) => { row.hidden = state.hidden.has(row.dataset.allocator); });
  all("table.given").forEach((table) => all("thead th", table).forEach((heading, column) => {
    const { allocator } = heading.dataset;
    if (allocator) [...table.rows].forEach((row) => { row.cells[column].hidden = state.hidden.has(allocator); });
  }));
};

// ---- The table of all workloads ----

const make = (tag, text = "", into = null, attributes = {}) => {
  const node = document.createElement(tag);
  node.textContent = text;
  Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));
  into?.append(node);
  return node;
};
const DARKEST = Math.log(2.5); // the heat's ends: 2.5 times better or worse
const heat = (value) => {
  if (!value || value === 1) return "";
  const strength = 0.6 * Math.min(1, Math.abs(Math.log(value)) / DARKEST);
  return `rgb(var(--${value < 1 ? "better" : "worse"}) / ${strength.toFixed(2)})`;
};
// What the table says of a pair: a number to sort by and to compare, and its text.
const told = (workload, allocator) => {
  const { key, unit } = measure(), found = spread(workload, allocator, key);
  if (state.shown === "since") {
    const [value, beyond] = data.since[workload]?.[allocator]?.[key] ?? [null, 0];
    return { value, text: ratioText(value), ratio: beyond ? value : null, beyond };
  }
  if (state.shown === "values") {
    const row = allocators().map((name) => spread(workload, name, key)?.median ?? null);
    const scale = scaleOf(least(row) ?? 0, unit);
    return { value: found?.median ?? null, text: found ? valueText(found.median, scale) : NONE,
      ratio: ratio(workload, allocator, key, data.reference) };
  }
  const value = ratio(workload, allocator, key, base());
  return { value, text: ratioText(value), ratio: value };
};
const explained = (workload, allocator) => {
  const { key, unit, title } = measure(), found = spread(workload, allocator, key);
  if (!found) return "no figure";
  const scale = scaleOf(found.median, unit);
  return `${workload}, ${allocator}, ${title}: median ${valueText(found.median, scale)}, minimum ${valueText(found.least, scale)}, `
    + `maximum ${valueText(found.most, scale)}, runs: ${found.runs}`;
};
const cellOf = (entry, allocator, best) => {
  const cell = make("td");
  const failure = data.failures[entry.name]?.[allocator];
  if (failure) {
    Object.assign(cell, { textContent: "failed", title: failure, className: "failed" });
    return { cell, value: null };
  }
  const { value, text, ratio: shade, beyond } = told(entry.name, allocator);
  cell.textContent = text + (beyond ? " *" : "");
  cell.title = explained(entry.name, allocator);
  cell.style.background = heat(shade);
  if (value !== null && value === best) cell.className = "best";
  return { cell, value };
};
const rowOf = (entry, names) => {
  const row = make("tr", "", null, { "data-name": entry.name });
  const head = make("th", "", row, { scope: "row" });
  make("button", entry.name, head, { type: "button", title: entry.about }).addEventListener("click", () => {
    state.workload = entry.name;
    update();
    byId("one").scrollIntoView();
  });
  make("td", entry.group, row);
  const values = names.map((name) => (data.failures[entry.name]?.[name] ? null : told(entry.name, name).value));
  const differ = new Set(values.filter((value) => value !== null)).size > 1 && state.shown !== "since";
  const best = differ ? least(values) : null;
  names.forEach((name) => row.append(cellOf(entry, name, best).cell));
  if (entry.name === state.workload) row.setAttribute("aria-current", "true");
  return { row, keys: [entry.name, entry.group, ...values] };
};
// Over the rows that every shown allocator has a figure for, so that all means are over the same work.
const footOf = (rows, names) => {
  const foot = make("tr");
  if (state.shown === "values") return foot;
  const common = rows.filter(({ keys }) => keys.slice(2).every((value) => value));
  make("th", `geometric mean of ${common.length}`, foot, { scope: "row" });
  make("td", "", foot);
  const means = names.map((_, at) => geometricMean(common.map(({ keys }) => keys[at + 2])));
  means.forEach((mean) => make("td", ratioText(mean), foot, mean !== null && mean === least(means) ? { class: "best" } : {}));
  return foot;
};
const drawMatrix = () => {
  const table = byId("matrix"), names = allocators(), columns = ["workload", "group", ...names];
  const kept = document.activeElement?.closest?.("#matrix [data-column]")?.dataset.column;
  table.replaceChildren();
  const head = make("tr", "", table.createTHead());
  columns.forEach((column) => {
    const heading = make("th", "", head, { scope: "col", "data-column": column });
    make("button", column, heading, { type: "button" }).addEventListener("click", () => {
      state.sort = { column, up: state.sort.column !== column || !state.sort.up };
      update();
    });
  });
  const rows = workloads().map((entry) => rowOf(entry, names)), at = columns.indexOf(state.sort.column);
  if (at >= 0) rows.sort((one, other) => compare(one.keys[at], other.keys[at], state.sort.up));
  mark(all("thead th", table), at, state.sort.up);
  table.createTBody().append(...rows.map(({ row }) => row));
  table.createTFoot().append(footOf(rows, names));
  if (kept) all("th[data-column]", table).find(({ dataset }) => dataset.column === kept)?.firstChild.focus();
  const hint = {
    since: "ratios of medians, now / before; * marks a change beyond the spread: the ranges of the repetitions do not overlap",
    values: "medians; the colour is the ratio to " + data.reference,
  }[state.shown] ?? `ratios of medians to ${base()}'s`;
  byId("matrix-note").textContent = `${measure().title}: ${hint}. Less is better. Point at a cell for its median, minimum and maximum.`;
};

// ---- Plots ----

const COLOURS = ["#7f7f7f", "#e0342b", "#1f77b4", "#17a2b8", "#2ca02c", "#ff9f1c", "#9467bd", "#c7a600", "#e377c2", "#8c6d4f", "#00b894",
  "#5c7cfa", "#b5bd00", "#ad1457"];
const SHAPES = ["circle", "diamond", "square", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left"];
const rank = Object.fromEntries(data.allocators.map((name, at) => [name, at]));
const colourOf = (name) => COLOURS[rank[name] % COLOURS.length];
const scales = () => {
  const domain = allocators();
  return {
    color: { field: "allocator", type: "nominal", sort: null, scale: { domain, range: domain.map(colourOf) } },
    shape: { field: "allocator", type: "nominal", sort: null, scale: { domain, range: domain.map((name) => SHAPES[rank[name] % SHAPES.length]) } },
  };
};
const dark = matchMedia("(prefers-color-scheme: dark)");
const config = () => {
  const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(name).trim();
  const text = { labelColor: of("--ink"), titleColor: of("--ink"), titleFontWeight: "normal", labelFontSize: 11, titleFontSize: 12 };
  return {
    background: null, font: "system-ui, sans-serif", view: { stroke: of("--line") },
    axis: { ...text, gridColor: of("--line"), domainColor: of("--quiet"), tickColor: of("--quiet") },
    legend: { ...text, symbolOpacity: 1 }, header: text, text: { color: of("--ink") }, title: { color: of("--ink") },
  };
};
const draw = (id, spec) => {
  const place = byId(id);
  if (!spec) {
    place.textContent = "This choice leaves nothing to draw.";
    return Promise.resolve();
  }
  const options = { actions: false, renderer: "svg", ast: true, config: config(), tooltip: { theme: dark.matches ? "dark" : "light" } };
  return vegaEmbed(place, { ...spec, usermeta: {} }, options);
};
const roomOf = (id) => Math.max(260, byId(id).clientWidth - 20);
const quantity = (field, title, zero) => ({ field, type: "quantitative", title, scale: { zero, nice: true }, axis: { tickCount: 7 } });

// The geometric mean within each repetition: its middle and its ends.
const meanSpread = (names, allocator, key) => {
  const pairs = names.map((name) => [valuesOf(name, allocator, key), valuesOf(name, base(), key)]);
  const runs = Math.min(...pairs.flat().map((values) => values.length));
  const means = [...Array(runs).keys()].map((at) => geometricMean(pairs.map(([mine, other]) => mine[at] / other[at])));
  return means.some((mean) => mean === null) ? null : spreadOf(means);
};
const scatter = () => {
  const shown = allocators(), keys = ["seconds", "peak_rss_kib"];
  const names = workloads().map(({ name }) => name)
    .filter((name) => keys.every((key) => [...shown, base()].every((one) => valuesOf(name, one, key)?.every((value) => value > 0))));
  byId("scatter-note").textContent = `Geometric means over ${names.length} workloads that all shown allocators finished; the bars span the `
    + "minimum and the maximum of the repetitions. Lower left is better.";
  if (!names.length || !shown.length) return null;
  const values = shown.map((allocator) => {
    const [time, memory] = keys.map((key) => meanSpread(names, allocator, key));
    return time && memory && { allocator, time: time.median, timeLeast: time.least, timeMost: time.most,
      memory: memory.median, memoryLeast: memory.least, memoryMost: memory.most };
  }).filter(Boolean);
  const x = quantity("time", `time, ratio to ${base()}`, false), y = quantity("memory", `peak resident set, ratio to ${base()}`, false);
  const tooltip = ["allocator", "time", "timeLeast", "timeMost", "memory", "memoryLeast", "memoryMost"].map((field) =>
    (field === "allocator" ? { field } : { field, type: "quantitative", format: ".3f" }));
  const { color, shape } = scales();
  return {
    description: "Time against peak resident set of each allocator", width: Math.min(800, roomOf("plot-scatter") - 160), height: 380,
    data: { values }, encoding: { color, x, y },
    layer: [
      { mark: { type: "rule", strokeWidth: 2 }, encoding: { x: { ...x, field: "timeLeast" }, x2: { field: "timeMost" } } },
      { mark: { type: "rule", strokeWidth: 2 }, encoding: { y: { ...y, field: "memoryLeast" }, y2: { field: "memoryMost" } } },
      { mark: { type: "point", filled: true, size: 90, opacity: 1 }, encoding: { shape, tooltip } },
      { mark: { type: "text", align: "left", dx: 8, dy: -6 }, encoding: { text: { field: "allocator" }, color: { value: config().text.color } } },
    ],
  };
};

// Operations a second where all of the line count them; otherwise runs.
const throughput = (name, allocator, counted) =>
  (counted ? valuesOf(name, allocator, "rate")?.map((rate) => rate / 1e6) : valuesOf(name, allocator, "seconds")?.map((seconds) => 1 / seconds));
const scaling = () => {
  const there = new Set(workloads().map(({ name }) => name));
  const values = data.lines.flatMap((line) => {
    const of = line.of.filter(([name]) => there.has(name));
    const counted = of.every(([name]) => Object.values(data.values[name] ?? {}).every((figures) => figures.rate));
    const title = `${line.title}, ${counted ? "M operations/s" : "runs/s"}`;
    return of.flatMap(([name, threads]) => allocators().map((allocator) => {
      const found = throughput(name, allocator, counted);
      if (!found) return null;
      const { median: rate, least: from, most: to } = spreadOf(found);
      return { line: title, allocator, threads, rate, from, to };
    }).filter(Boolean));
  });
  if (!values.length) return null;
  const x = { ...quantity("threads", "threads", false), axis: { values: [...new Set(values.map(({ threads }) => threads))], format: "d" } };
  const y = quantity("rate", null, true), { color, shape } = scales();
  const tooltip = [{ field: "allocator" }, { field: "threads" }, ...["rate", "from", "to"].map((field) => ({ field, type: "quantitative", format: ".4" }))];
  const columns = Math.max(1, Math.min(3, Math.floor(roomOf("plot-scaling") / 340)));
  return {
    description: "Throughput against threads", data: { values }, columns,
    facet: { field: "line", type: "nominal", title: null, sort: null },
    spec: {
      width: 250, height: 190, encoding: { x, color },
      layer: [
        { mark: { type: "line", strokeWidth: 1.5 }, encoding: { y } },
        { mark: { type: "rule", strokeWidth: 2 }, encoding: { y: { ...y, field: "from" }, y2: { field: "to" } } },
        { mark: { type: "point", filled: true, size: 45, opacity: 1 }, encoding: { y, shape, tooltip } },
      ],
    },
    resolve: { scale: { x: "independent", y: "independent" }, axis: { x: "independent" } },
  };
};

// One workload under every shown allocator: each repetition, the median, the ends.
const oneMeasure = (key) => {
  const { title, unit } = data.measures.find((one) => one.key === key) ?? {};
  const found = title && allocators().map((allocator) => ({ allocator, values: valuesOf(state.workload, allocator, key) })).filter(({ values }) => values);
  if (!found?.length) return null;
  const scale = scaleOf(least(found.map(({ values }) => median(values))), unit);
  const points = found.map(({ allocator, values }) => ({ allocator, ...spreadOf(values.map((value) => value * scale.factor)) }));
  const each = found.flatMap(({ allocator, values }) => values.map((value, at) => ({ allocator, value: value * scale.factor, repetition: at + 1 })));
  const order = [...points].sort((one, other) => one.median - other.median).map(({ allocator }) => allocator);
  const x = quantity("median", `${title}${scale.unit && ", " + scale.unit}`, false);
  const y = { field: "allocator", type: "nominal", title: null, scale: { domain: order } };
  const color = { ...scales().color, legend: null };
  const tooltip = [{ field: "allocator" }, ...["median", "least", "most"].map((field) => ({ field, type: "quantitative", format: ",.3f" }))];
  return {
    description: `${title} of ${state.workload} under each allocator`, width: Math.min(560, roomOf("plot-one-time") - 130), height: { step: 22 },
    layer: [
      { data: { values: points }, mark: { type: "rule", strokeWidth: 2 },
        encoding: { x: { ...x, field: "least" }, x2: { field: "most" }, y, color } },
      { data: { values: each }, mark: { type: "tick", thickness: 1.5, size: 12 },
        encoding: { x: { ...x, field: "value" }, y, color, tooltip: [{ field: "allocator" }, { field: "repetition" }, { field: "value", format: ",.3f" }] } },
      { data: { values: points }, mark: { type: "point", filled: true, size: 70, opacity: 1 }, encoding: { x, y, color, tooltip } },
    ],
  };
};
const course = () => {
  const values = allocators().flatMap((allocator) =>
    (data.courses[state.workload]?.[allocator] ?? []).map(([seconds, kib]) => ({ allocator, seconds, mib: kib / 1024 })));
  byId("course").hidden = !values.length;
  if (!values.length) return null;
  const tooltip = [{ field: "allocator" }, { field: "seconds", format: ".2f" }, { field: "mib", title: "MiB", format: ",.1f" }];
  return {
    description: `Resident set of ${state.workload} over time under each allocator`, width: Math.min(800, roomOf("plot-course") - 160), height: 260,
    data: { values }, mark: { type: "line", point: { size: 18 }, strokeWidth: 1.5 },
    encoding: { x: quantity("seconds", "seconds", false), y: quantity("mib", "resident set, MiB", true), color: scales().color, tooltip },
  };
};
const drawPlots = async () => {
  const about = data.workloads.find(({ name }) => name === state.workload)?.about ?? "";
  byId("one-about").textContent = about;
  byId("one-workload").value = state.workload;
  const specs = [["plot-scatter", scatter()], ["plot-one-time", oneMeasure("seconds")], ["plot-one-memory", oneMeasure("peak_rss_kib")],
    ["plot-course", course()]];
  if (data.lines.length) specs.push(["plot-scaling", scaling()]);
  for (const [id, spec] of specs) await draw(id, spec);
};

// ---- All of it ----

// One drawing at a time; what is chosen meanwhile makes one more.
let drawing = null, again = false;
const redraw = async () => {
  do {
    again = false;
    await drawPlots();
  } while (again);
  drawing = null;
};
const update = () => {
  filterTables();
  byId("shown").textContent = `${workloads().length} of ${data.workloads.length} workloads, ${allocators().length} of ${data.allocators.length} allocators`;
  if (!data.workloads.length) return;
  drawMatrix();
  again = true;
  drawing ??= redraw();
};
const checkboxes = (id, names, gone, swatch) => names.forEach((name) => {
  const label = make("label", "", byId(id)), box = make("input", "", label, { type: "checkbox", value: name });
  box.checked = true;
  if (swatch) make("span", "", label, { class: "swatch" }).style.background = colourOf(name);
  label.append(" " + name);
  box.addEventListener("change", () => {
    if (box.checked) gone.delete(name);
    else gone.add(name);
    update();
  });
});
const options = (id, entries, chosen, choose) => {
  const select = byId(id);
  entries.forEach(([value, text]) => make("option", text, select, { value }));
  select.value = chosen;
  select.addEventListener("change", () => {
    choose(select.value);
    update();
  });
};
const begin = () => {
  all("table.given").forEach(sortable);
  checkboxes("groups", [...new Set([...data.workloads.map(({ group }) => group), ...all("tr[data-group]").map((row) => row.dataset.group)])],
    state.groups, false);
  checkboxes("allocators", data.allocators, state.hidden, true);
  byId("text").addEventListener("input", () => {
    state.text = byId("text").value.trim();
    update();
  });
  byId("reset").addEventListener("click", () => {
    Object.assign(state, { text: "", sort: { column: null, up: true } });
    state.groups.clear();
    state.hidden.clear();
    byId("text").value = "";
    all("#choice input[type=checkbox]").forEach((box) => { box.checked = true; });
    update();
  });
  if (data.workloads.length) {
    const lost = all("#losses-seconds tr[data-workload]")[0]?.dataset.workload;
    state.workload = lost ?? data.workloads[0].name;
    options("measure", data.measures.map(({ key, title }) => [key, title]), state.measure, (key) => { state.measure = key; });
    const ways = [...data.allocators.map((name) => ["to " + name, "ratio to " + name]), ["values", "values"]];
    if (data.since) ways.push(["since", "change since the last run"]);
    options("way", ways, state.shown, (way) => { state.shown = way; });
    options("one-workload", data.workloads.map(({ name }) => [name, name]), state.workload, (name) => { state.workload = name; });
    dark.addEventListener("change", update);
  }
  update();
};
begin();
// For tests: until nothing is being drawn.
window.drawn = async () => { while (drawing) await drawing; };
