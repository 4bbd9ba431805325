// A cell's own view: a dialog, whose place is in the address.
const KINDS = { valid: "valid", warnings: "warnings", partial: "partial", invalid: "invalid", failed: "failed" };
const MARKS = { valid: "✓", warnings: "!", partial: "◐", invalid: "✕", failed: "✕" };
const badge = (status) => el("span", { class: `badge ${status}` }, el("span", { "aria-hidden": "true" }, MARKS[status]), el("span", null, KINDS[status]));

function openCell(id) {
  state.set("cell", id);
  const cell = data.cells.find((one) => one.id === id);
  const dialog = byId("cell");
  if (!cell) return;
  byId("cell-content").replaceChildren(...cellView(cell));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  byId("cell-title").focus();
  renderCurves(cell);
}

byId("cell").addEventListener("close", () => {
  state.set("cell", "");
  byId("cell-content").replaceChildren();
});
byId("cell").addEventListener("click", (event) => {
  if (event.target === byId("cell")) byId("cell").close(); // beside it
});

// Of `cell`, under a heading with buttons; or, where it is the only one, without.
function cellView(cell, alone) {
  const close = el("button", { type: "button", class: "quiet", onclick: () => byId("cell").close() }, "Close");
  const step = (by, text) => {
    const all = shownCells();
    const next = all[all.findIndex((one) => one.id === cell.id) + by];
    return el("button", { type: "button", class: "quiet", disabled: !next, onclick: () => openCell(next.id) }, text);
  };
  const tiles = data.columns.filter((name) => cell.metrics[name]).map((name) =>
    el("div", { class: "tile" }, el("dt", null, metricOf(name).heading), el("dd", null, cell.metrics[name][3])));
  return [
    alone ? null : el("div", { class: "title" }, el("h2", { id: "cell-title", tabindex: "-1" }, cell.label || "The one cell"), el("span", { class: "buttons" }, step(-1, "Previous"), step(1, "Next"), close)),
    el("p", { class: "verdict" }, badge(cell.status), ` ${cell.n} of ${plural(cell.runs.length, "run")} valid`),
    notesOf(cell),
    tiles.length ? el("dl", { class: "tiles" }, tiles) : null,
    ...latencyOf(cell),
    ...courseOf(cell),
    runsOf(cell),
    ...settingsOf(cell),
    ...metricsOf(cell),
  ].filter(Boolean);
}

const pairs = (caption, rows) => el("table", { class: "pairs" }, el("caption", { class: "hidden" }, caption),
  rows.map(([name, ...values]) => el("tr", null, el("th", { scope: "row" }, name), values.map((value) => el("td", null, value)))));

function notesOf(cell) {
  if (!cell.notes.length) return null;
  return el("ul", { class: "notes" }, cell.notes.map((note) =>
    el("li", { class: note.kind }, el("b", null, `${note.kind === "warning" ? "Warning" : note.kind}: `), note.text, el("span", { class: "muted" }, ` (${plural(note.runs, "run")})`))));
}

function latencyOf(cell) {
  const parts = [];
  const shares = Object.entries(cell.shares);
  if (shares.length) {
    const bar = shares.map(([stage, share]) => el("span", { width: `${100 * Math.max(0, share)}%`, color: `var(--${stage})`, "data-hatch": data.stages[stage].hatch, title: `${data.stages[stage].name}: ${(100 * share).toFixed(1)} %` }));
    parts.push(el("h3", null, "Where the latency goes"), el("div", { class: "bar", "aria-hidden": "true" }, bar),
      el("table", { class: "data" }, el("thead", null, el("tr", null, ["Stage", "Share", "Mean (s)"].map((text, i) => el("th", { scope: "col", class: i ? "number" : "text" }, text)))),
        el("tbody", null, shares.map(([stage, share]) => el("tr", null, el("th", { scope: "row", class: "text" }, el("span", { class: "key" }, stageDot(stage), data.stages[stage].title, el("span", { class: "wide" }, data.stages[stage].name.slice(data.stages[stage].title.length)))),
          el("td", { class: "number" }, `${(100 * share).toFixed(1)} %`), el("td", { class: "number" }, cell.metrics[stage] ? cell.metrics[stage][3] : "–"))))));
  }
  const names = ["min_latency", ...Object.keys(data.percentiles).map((name) => `latency_${name}`), "max_latency"];
  const lacking = (name) => cell.missing[name.replace("latency_", "")];
  if (cell.curves || names.some((name) => cell.metrics[name])) {
    const shown = names.filter((name) => cell.metrics[name] || lacking(name));
    parts.push(el("h3", null, "Latency distribution"), ...distributionOf(cell),
      pairs("Latency percentiles in seconds", shown.map((name) => [labelOf(name), cell.metrics[name] ? `${cell.metrics[name][3]} s` : `– (${plural(lacking(name), "more request")} in a run would support it)`])));
  }
  if (cell.tail.sentence) {
    parts.push(el("h3", null, "What the slowest requests waited for"), el("p", { class: "sentence" }, `${cell.tail.sentence}.`), cell.tail.advice ? el("p", null, el("b", null, "Try "), `${cell.tail.advice}.`) : null);
  }
  return parts;
}

const labelOf = (name) => (data.metrics.some((metric) => metric.name === name) ? metricOf(name).text : name.replace("latency_", "").replaceAll("_", "."));

function runsOf(cell) {
  const names = ["throughput", "average_latency", "latency_p99", "warmup_latency"].filter((name) => cell.runs.some((run) => name in run.texts));
  const heads = ["Run", "Repeat", "Started (UTC)", "Verdict", ...names.map((name) => metricOf(name).heading)];
  const row = (run) => el("tr", null,
    el("th", { scope: "row", class: "text" }, el("a", { href: run.link }, run.name)), el("td", { class: "number" }, String(run.repeat)),
    el("td", { class: "whole" }, new Date(run.started_at).toISOString().replace("T", " ").slice(0, 19)), el("td", null, run.status), names.map((name) => el("td", { class: "number" }, run.texts[name] || "–")));
  const traces = cell.runs.filter((run) => run.traceback).map((run) =>
    el("details", null, el("summary", null, `Traceback of ${run.name}`), el("pre", null, run.traceback)));
  return el("section", null, el("h3", null, "Runs"), edges(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" },
    el("table", { class: "data" }, el("thead", null, el("tr", null, heads.map((text, i) => el("th", { scope: "col", class: i === 1 || i > 3 ? "number" : "text" }, text)))), el("tbody", null, cell.runs.map(row))))), traces);
}

function settingsOf(cell) {
  const own = Object.entries(cell.settings);
  return [el("h3", null, "Settings"),
    own.length ? pairs("Settings of this cell", own) : null,
    el("details", null, el("summary", null, own.length ? "The same in all cells" : "All settings"), pairs("Settings of all cells", Object.entries(data.settings)))];
}

function metricsOf(cell) {
  const rows = (groups) => data.metrics.filter((metric) => groups.includes(metric.group) && cell.metrics[metric.name]).map((metric) => [metric.heading, cell.metrics[metric.name][3]]);
  const machine = rows(["machine"]);
  return [
    machine.length ? el("h3", null, "GPU and host, mean over the window") : null, machine.length ? pairs("GPU and host", machine) : null,
    el("details", null, el("summary", null, "All metrics"), pairs("All metrics", rows(["speed", "latency", "stages", "machine", "other"]))),
  ];
}
