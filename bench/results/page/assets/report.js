// The page of a sweep: what the address says, the table, the charts.
const data = JSON.parse(byId("data").textContent);
const axes = [...(data.experiments.length > 1 ? [{ name: "experiment", values: data.experiments, numbers: data.experiments.map(() => null) }] : []), ...data.axes];
for (const cell of data.cells) {
  cell.values = { experiment: cell.experiment };
  data.axes.forEach((axis, i) => { cell.values[axis.name] = cell.axes[i]; });
  cell.words = [cell.experiment, cell.label, cell.verdict, KINDS[cell.status], ...cell.notes.map((note) => note.text), ...Object.entries(cell.settings).flat()].join("\n").toLowerCase();
}
const metrics = Object.fromEntries(data.metrics.map((metric) => [metric.name, metric]));
const metricOf = (name) => ({ text: (metrics[name] || { label: name }).label, heading: (metrics[name] || { heading: name }).heading });
const statuses = ["valid", "warnings", "partial", "invalid", "failed"].filter((status) => data.cells.some((cell) => cell.status === status));

function shownCells() {
  const words = state.get("q").toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = axes.map((axis) => [axis.name, state.all(`is.${axis.name}`)]).filter(([, values]) => values.length);
  const verdicts = state.all("verdict");
  const cells = data.cells.filter((cell) => words.every((word) => cell.words.includes(word))
    && wanted.every(([name, values]) => values.includes(cell.values[name])) && (!verdicts.length || verdicts.includes(cell.status)));
  const sort = state.get("sort");
  return sorted(cells, columns().find((column) => column.key === sort.replace(/^-/, "")), sort.startsWith("-"));
}

function columns() {
  const place = (axis, cell) => axis.values.indexOf(cell.values[axis.name]);
  const ofAxis = (axis) => ({ key: axis.name, label: axis.name, kind: axis.numbers.every((number) => number !== null) ? "number" : "text", value: (cell) => place(axis, cell), text: (cell) => cell.values[axis.name] });
  const ofMetric = (name) => ({
    key: `m.${name}`, label: metricOf(name).heading, kind: "number", value: (cell) => (cell.metrics[name] ? cell.metrics[name][0] : null),
    mark: (cell) => (data.marks[name]?.best === cell.id ? "best" : data.marks[name]?.ties.includes(cell.id) ? "tie" : null),
    text: (cell) => (cell.metrics[name] ? cell.metrics[name][3] + (cell.metrics[name][2] < cell.n ? ` (n=${cell.metrics[name][2]})` : "") : "–"),
  });
  const verdict = (cell) => el("span", { title: cell.verdict }, badge(cell.status));
  return [...axes.map(ofAxis),
    { key: "n", label: "n", kind: "number", value: (cell) => cell.n, text: (cell) => String(cell.n) },
    { key: "verdict", label: "verdict", kind: "text", value: (cell) => statuses.indexOf(cell.status), text: (cell) => cell.verdict, node: verdict },
    ...chosenMetrics().map(ofMetric)];
}

const chosenMetrics = () => (state.values.has("columns") ? state.get("columns").split(" ").filter((name) => metrics[name]) : data.columns.slice(0, 6));

function renderTable(cells) {
  makeTable(byId("main"), {
    caption: "The cells of the sweep, a row each", columns: columns(), rows: cells, sort: state.get("sort"), rowName: (cell) => cell.label,
    onsort: (sort) => { state.set("sort", sort); refresh(); say(sort ? `Sorted by ${sort.replace(/^-?(m\.)?/, "")}, ${sort.startsWith("-") ? "descending" : "ascending"}` : "In the order of the axes"); },
    onopen: data.cells.length > 1 ? (cell) => openCell(cell.id) : null,
  });
  const count = cells.length === data.cells.length ? plural(cells.length, "cell") : `${cells.length} of ${plural(data.cells.length, "cell")}`;
  byId("count").textContent = count;
  return count;
}

function menu(text, id, key, choices) {
  const chosen = state.all(key);
  const toggle = (value) => (checked) => {
    const now = state.all(key).filter((one) => one !== value);
    state.set(key, checked ? [...now, value] : now);
    mark();
    changed();
  };
  const summary = el("summary");
  const mark = () => {
    const now = choices.filter(([value]) => state.all(key).includes(value));
    summary.replaceChildren(text, el("span", { class: "muted" }, now.length === 0 ? " all" : now.length === 1 ? ` ${now[0][1]}` : ` ${now.length}`));
  };
  mark();
  return el("details", { class: "menu", id }, summary, el("div", { class: "panel" }, choices.map(([value, name]) => choice(name, chosen.includes(value), toggle(value)))));
}

function renderControls() {
  const several = axes.filter((axis) => axis.values.length > 1);
  const menus = several.map((axis) => menu(axis.name, `filter-${axis.name}`, `is.${axis.name}`, axis.values.map((value) => [value, value])));
  if (statuses.length > 1) menus.push(menu("verdict", "filter-verdict", "verdict", statuses.map((status) => [status, KINDS[status]])));
  byId("filters").replaceChildren(...menus);
  byId("query").value = state.get("q");
  byId("columns").lastElementChild.replaceChildren(...data.metrics.map((metric) => choice(metric.heading, chosenMetrics().includes(metric.name), (checked) => {
    const now = chosenMetrics().filter((name) => name !== metric.name);
    state.set("columns", (checked ? [...now, metric.name] : now).join(" ") || " ");
    refresh();
  })));
}

// Charts are drawn where they are seen: before the first is, and for those further down, nothing waits.
const charts = [["explore", renderExplore], ["trade", renderTrade], ["stages", renderStages], ["order", renderOrder]].map(([id, render]) => ({ place: byId(id).parentElement, render, seen: false, stale: true }));
function renderCharts(everything) {
  for (const chart of charts) {
    chart.stale = !(everything || chart.seen);
    if (!chart.stale) chart.render(shownCells());
  }
}
const watch = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const chart = charts.find((one) => one.place === target);
    chart.seen = isIntersecting;
    if (chart.seen && chart.stale) chart.render(shownCells());
    if (chart.seen) chart.stale = false;
  }
}, { rootMargin: "200px" });

function refresh() {
  const cells = shownCells();
  const count = renderTable(cells);
  renderPickers(refresh);
  renderCharts(false);
  return count;
}

// One cell: its own view stands on the page, and there is nothing to choose from or to plot against.
function renderParts() {
  const alone = data.cells.length === 1;
  byId("alone").hidden = !alone;
  for (const part of document.querySelectorAll(".many")) part.hidden = alone || data.cells.length === 0;
  byId("order").parentElement.hidden = !data.cells.some((cell) => cell.n > 1);
  if (!alone) return;
  byId("alone").lastElementChild.replaceChildren(...cellView(data.cells[0], true));
}

const changed = () => say(`${refresh()} shown`);

byId("query").addEventListener("input", () => { state.set("q", byId("query").value); changed(); });
byId("clear").addEventListener("click", () => {
  for (const key of ["q", "verdict", "sort", "columns", "hide", ...axes.map((axis) => `is.${axis.name}`)]) state.set(key, "");
  renderControls();
  changed();
});
whenLookChanges((everything) => { renderCharts(everything); redrawCurves(); });
addEventListener("hashchange", () => { if (state.read()) start(); });

function start() {
  renderControls();
  refresh();
  showCell();
}

function showCell() {
  if (state.get("cell")) openCell(state.get("cell"));
  else if (byId("cell").open) byId("cell").close();
}

renderProgress();
renderControls();
renderParts();
refresh();
whenChartsCanBeDrawn(() => {
  if (data.cells.length === 1) renderCurves(data.cells[0]);
  showCell();
  charts.forEach((chart) => watch.observe(chart.place));
  recall();
});
