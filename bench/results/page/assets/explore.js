// A metric by an axis, a line for each combination of the others, a chart for each value of the facet.
const FACETS = 12; // values of an axis up to which it can be a facet

function defaults() {
  const several = axes.filter((axis) => axis.values.length > 1);
  const numeric = several.filter((axis) => axis.numbers.every((number) => number !== null));
  const x = several.find((axis) => axis.name === "batch_size") || numeric[0] || several[0] || axes[0];
  const [line, ...rest] = several.filter((axis) => axis !== x);
  const facet = rest.find((axis) => axis.values.length <= 6);
  return { x: x.name, line: line ? line.name : "", facet: facet ? facet.name : "", y: data.columns[0] || "" };
}

function view() {
  const wanted = defaults();
  const known = (key, names) => {
    const name = state.get(key) === "none" ? "" : state.get(key, wanted[key]);
    return names.includes(name) ? name : wanted[key];
  };
  const names = axes.map((axis) => axis.name);
  const [x, y] = [known("x", names), known("y", data.metrics.map((metric) => metric.name))];
  const apart = (name, ...taken) => (taken.includes(name) ? "" : name);
  const line = apart(known("line", ["", ...names]), x);
  return { x, y, line, facet: apart(known("facet", ["", ...names]), x, line), log: state.get("log") === "1" };
}

function renderPickers(refresh) {
  const { x, y, line, facet, log } = view();
  const pick = (key) => (value) => {
    const other = ["x", "line", "facet"].find((one) => one !== key && value && view()[one] === value);
    if (other) state.set(other, view()[key] || "none"); // they change places
    state.set(key, value || "none");
    refresh();
  };
  const groups = { speed: "Speed", latency: "Latency", stages: "Stages", machine: "Machine", other: "Other" };
  const metrics = {};
  for (const [group, name] of Object.entries(groups)) {
    const found = data.metrics.filter((metric) => metric.group === group);
    if (found.length) metrics[name] = found.map((metric) => [metric.name, metric.heading]);
  }
  const choices = (list) => ({ "": list.map((axis) => [axis.name, axis.name]) });
  const optional = (list) => ({ "": [["", "none"], ...list.map((axis) => [axis.name, axis.name])] });
  const box = el("input", { type: "checkbox", id: "log", onchange: () => { state.set("log", box.checked ? "1" : ""); refresh(); } });
  box.checked = log;
  const focused = document.activeElement?.closest?.("#pickers label")?.firstChild.textContent;
  const fields = [
    picker("Metric", metrics, y, pick("y")),
    picker("x axis", choices(axes), x, pick("x")),
    picker("Lines", optional(axes.filter((axis) => axis.name !== x)), line, pick("line")),
    picker("Facets", optional(axes.filter((axis) => axis.name !== x && axis.values.length <= FACETS)), facet, pick("facet")),
    el("label", { class: "choice" }, box, el("span", null, "log scale")),
  ];
  byId("pickers").replaceChildren(...fields);
  fields.find((field) => field.firstChild.textContent === focused)?.querySelector("select")?.focus();
}

// The lines of these cells: each with the cells of one combination of all axes but x and the facet.
function lines(cells, { x, line, facet }) {
  const others = axes.filter((axis) => axis.name !== x && axis.name !== facet && axis.values.length > 1);
  others.sort((a, b) => (b.name === line) - (a.name === line));
  const found = new Map();
  for (const cell of cells) {
    const places = others.map((axis) => axis.values.indexOf(cell.values[axis.name]));
    const name = others.map((axis) => `${axis.name}=${cell.values[axis.name]}`).join(", ") || "all cells";
    if (!found.has(name)) found.set(name, { name, places, cells: [] });
    found.get(name).cells.push(cell);
  }
  const order = (a, b) => a.places.map((place, i) => place - b.places[i]).find((sign) => sign) || 0;
  return [...found.values()].sort(order);
}

const hover = (cell, names) => [cell.label || "the one cell", ...names.filter((name) => cell.metrics[name]).map((name) =>
  `${metricOf(name).heading}: ${cell.metrics[name][3]}${cell.metrics[name][2] > 1 ? ` (n=${cell.metrics[name][2]})` : ""}`)].map(plain).join("<br>");

function traceOf(one, i, axis, scale, metric) {
  const cells = [...one.cells].sort((a, b) => axis.values.indexOf(a.values[axis.name]) - axis.values.indexOf(b.values[axis.name]));
  const { color, symbol, dash } = look(i);
  return {
    type: "scatter", mode: "lines+markers", name: plain(one.name), customdata: cells.map((cell) => cell.id),
    x: cells.map((cell) => (scale ? axis.numbers[axis.values.indexOf(cell.values[axis.name])] : axis.values.indexOf(cell.values[axis.name]))),
    y: cells.map((cell) => cell.metrics[metric][0]),
    error_y: { type: "data", array: cells.map((cell) => cell.metrics[metric][1] || 0), color, thickness: 1.2, width: 3 },
    line: { color, dash, width: 2 }, marker: { color, symbol, size: 8 },
    hoverinfo: "text", hovertext: cells.map((cell) => hover(cell, [metric])),
  };
}

function xAxis(axis, cells) {
  const shownValues = axis.values.filter((value) => cells.some((cell) => cell.values[axis.name] === value));
  const place = (value) => axis.values.indexOf(value);
  const numbers = shownValues.map((value) => axis.numbers[place(value)]);
  const scale = numbers.every((number) => number !== null) ? spread(numbers) : null;
  const ticks = shownValues.length <= 12 || !scale
    ? { tickmode: "array", tickvals: scale ? numbers : shownValues.map(place), ticktext: shownValues.map((value) => plain(value.length > 24 ? `${value.slice(0, 23)}…` : value)) }
    : {};
  return { scale, layout: { title: axis.name, type: scale ? scale.type : "linear", ...ticks, ...(scale ? {} : { range: [place(shownValues[0]) - 0.5, place(shownValues.at(-1)) + 0.5] }) } };
}

function yRange(cells, metric, log) {
  const values = cells.map((cell) => cell.metrics[metric]);
  const top = Math.max(...values.map(([mean, std]) => mean + (std || 0)));
  if (!log) {
    const bottom = Math.min(0, ...values.map(([mean, std]) => mean - (std || 0)));
    return { type: "linear", range: [bottom, (top || 1) * 1.06] };
  }
  const bottom = Math.min(...values.map(([mean]) => mean).filter((mean) => mean > 0));
  return { type: "log", range: [Math.log10(bottom) - 0.1, Math.log10(top) + 0.1] };
}

function renderExplore(all) {
  const chosen = view();
  const [metric, place] = [chosen.y, byId("explore")];
  const cells = all.filter((cell) => cell.metrics[metric] && (!chosen.log || cell.metrics[metric][0] > 0));
  place.querySelectorAll(".chart").forEach((chart) => window.Plotly?.purge(chart));
  byId("legend").replaceChildren();
  byId("explore-note").textContent = "";
  if (!cells.length) return place.replaceChildren(el("p", { class: "empty" }, "No valid run of the cells shown has this metric."));
  const all_lines = lines(cells, chosen);
  const hidden = new Set(state.all("hide"));
  const axis = axes.find((one) => one.name === chosen.x);
  const facet = axes.find((one) => one.name === chosen.facet);
  const values = facet ? facet.values.filter((value) => cells.some((cell) => cell.values[facet.name] === value)) : [null];
  place.classList.toggle("single", values.length === 1);
  const figures = values.map((value) => el("figure", null,
    value === null ? null : el("figcaption", null, `${facet.name} = ${value}`), el("div", { class: "chart" })));
  place.replaceChildren(...figures);
  const heading = metricOf(metric).heading;
  const { scale, layout } = xAxis(axis, cells);
  values.forEach((value, k) => {
    const here = (cell) => value === null || cell.values[facet.name] === value;
    const traces = all_lines.map((one, i) => [{ ...one, cells: one.cells.filter(here) }, i])
      .filter(([one]) => one.cells.length && !hidden.has(one.name)).map(([one, i]) => traceOf(one, i, axis, scale, metric));
    const label = `${heading} by ${axis.name}${value === null ? "" : `, ${facet.name} = ${value}`}; the table holds the same values`;
    draw(figures[k].lastChild, traces, { label, x: layout, y: { title: heading, ...yRange(cells, metric, chosen.log) }, height: values.length > 1 ? 280 : 380, onpick: openCell });
  });
  if (all_lines.length > 1) renderLegend(all_lines, hidden);
  byId("explore-note").textContent = "Error bars: ± sample standard deviation over the valid runs. A click on a point opens its cell, dragging zooms, a double click shows all again."
    + (all_lines.length > 16 ? ` ${all_lines.length} lines: filter above, or choose another facet.` : "");
}

function renderLegend(all, hidden) {
  const toggle = (name) => {
    hidden.has(name) ? hidden.delete(name) : hidden.add(name);
    state.set("hide", [...hidden]);
    renderExplore(shownCells());
    [...byId("legend").children].find((one) => one.textContent === name)?.focus();
  };
  byId("legend").replaceChildren(...all.map((one, i) => {
    const { color } = look(i);
    return el("button", { type: "button", "aria-pressed": String(!hidden.has(one.name)), title: "Show or hide", onclick: () => toggle(one.name) },
      swatch(i, color), one.name);
  }));
}

// A line with its marker, as the chart draws it.
function swatch(i, color) {
  const svg = (tag, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };
  const marks = ["M14 2a4 4 0 1 0 .01 0", "M10 2h8v8h-8z", "M14 1l5 5-5 5-5-5z", "M14 1l5 9H9z", "M10 2l8 8m0-8l-8 8", "M14 1v10M9 6h10", "M14 11L9 2h10z", "M14 0l2 4 4 1-3 3 1 4-4-2-4 2 1-4-3-3 4-1z"];
  const box = svg("svg", { width: 28, height: 12, "aria-hidden": "true" });
  const dash = { solid: "none", dash: "6 3", dot: "2 3", dashdot: "6 2 2 2" }[look(i).dash];
  box.append(svg("path", { d: "M0 6h28", stroke: color, "stroke-width": 2, "stroke-dasharray": dash }),
    svg("path", { d: marks[i % 8], fill: color, stroke: color, "stroke-width": i % 8 === 4 || i % 8 === 5 ? 2 : 0 }));
  return box;
}
