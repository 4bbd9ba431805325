// The page of a comparison: its rows, sorted and filtered, and each ratio with its interval.
const data = JSON.parse(byId("data").textContent);
const LOOKS = { faster: ["✓", "valid"], slower: ["✕", "failed"], higher: ["↑", "same"], lower: ["↓", "same"], same: ["=", "same"], unsure: ["?", "warnings"] };
const outcomes = Object.keys(LOOKS).filter((outcome) => data.lines.some((line) => line.outcome === outcome));
const named = new Map(data.lines.map((line) => [line.metric, line.name]));
const nameOf = (line) => [...data.axes.map((axis, i) => `${axis}=${line.axes[i]}`), line.name].join(", ");

const badge = (line) => el("span", { class: `badge ${LOOKS[line.outcome][1]}` }, el("span", { "aria-hidden": "true" }, LOOKS[line.outcome][0]), el("span", null, line.verdict));

function columns() {
  const number = (key, text, place, shown) => ({ key, label: text, kind: "number", value: (line) => line.numbers[place], text: shown });
  const text = (key, name, of) => ({ key, label: name, kind: "text", value: of, text: of });
  return [
    ...data.axes.map((axis, i) => ({ ...text(`axis.${axis}`, axis, (line) => line.axes[i]), kind: data.lines.every((line) => line.axes[i] !== "" && !isNaN(line.axes[i])) ? "number" : "text" })),
    text("metric", "metric", (line) => line.name),
    number("ratio", "B / A", 0, (line) => line.ratio),
    number("interval", "95 % interval", 1, (line) => line.interval),
    number("p", "p (Holm)", 3, (line) => line.p),
    { ...text("outcome", "B is", (line) => line.verdict), value: (line) => Object.keys(LOOKS).indexOf(line.outcome), node: badge },
    ...(data.gated ? [{ ...text("gate", "gate", (line) => line.gate), node: (line) => el("b", { class: "broken" }, line.gate) }] : []),
  ];
}

function shownLines() {
  const words = state.get("q").toLowerCase().split(/\s+/).filter(Boolean);
  const sort = state.get("sort");
  const lines = data.lines.filter((line) => words.every((word) => `${nameOf(line)} ${line.metric} ${line.verdict} ${line.gate}`.toLowerCase().includes(word))
    && [line.metric, ""].includes(state.get("metric")) && [line.outcome, ""].includes(state.get("outcome")));
  return sorted(lines, columns().find((column) => column.key === sort.replace(/^-/, "")), sort.startsWith("-"));
}

function renderPickers() {
  const pick = (key) => (value) => { state.set(key, value); refresh(); };
  byId("pickers").replaceChildren(
    picker("Metric", { "": [["", "all"], ...named] }, state.get("metric"), pick("metric")),
    picker("B is", { "": [["", "all"], ...outcomes.map((outcome) => [outcome, outcome])] }, state.get("outcome"), pick("outcome")));
  byId("query").value = state.get("q");
}

function renderIntervals(lines) {
  const place = byId("intervals");
  const most = lines.slice(0, 60);
  if (!most.length) return nothing(place, "No row is shown.");
  const colours = { faster: "good", slower: "bad", higher: "text", lower: "text", same: "muted", unsure: "warn" };
  const symbols = { faster: "circle", slower: "square", higher: "triangle-up", lower: "triangle-down", same: "diamond", unsure: "circle-open" };
  const traces = outcomes.map((outcome) => [outcome, most.filter((line) => line.outcome === outcome)]).filter(([, mine]) => mine.length).map(([outcome, mine]) => ({
    type: "scatter", mode: "markers", x: mine.map((line) => line.numbers[0]), y: mine.map((line) => most.indexOf(line)),
    error_x: { type: "data", symmetric: false, array: mine.map((line) => (line.numbers[2] ?? line.numbers[0]) - line.numbers[0]), arrayminus: mine.map((line) => line.numbers[0] - (line.numbers[1] ?? line.numbers[0])), color: colour(colours[outcome]), thickness: 2, width: 4 },
    marker: { color: colour(colours[outcome]), symbol: symbols[outcome], size: 9 }, hoverinfo: "text",
    hovertext: mine.map((line) => [nameOf(line), `B / A ${line.ratio}`, line.interval, line.verdict].map(plain).join("<br>")),
  }));
  const narrow = place.clientWidth < 600;
  const short = (line) => {
    const [text, limit] = narrow ? [[...line.axes, line.name].join(", "), 26] : [nameOf(line), 56];
    return plain(text.length > limit ? `${text.slice(0, limit - 1)}…` : text);
  };
  draw(place, traces, {
    label: `Ratio of B over A of ${most.length} rows, with 95 % intervals; the table holds the same values`, height: 90 + 26 * most.length,
    x: { title: "B / A" }, y: { tickmode: "array", tickvals: most.map((_, i) => i), ticktext: most.map((line) => short(line)), range: [most.length - 0.5, -0.5], fixedrange: true },
    shapes: [{ type: "line", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, line: { color: colour("text"), width: 1.5 } }],
  });
  return undefined;
}

function refresh() {
  const lines = shownLines();
  makeTable(byId("main"), { caption: "Metrics of the cells that both have, a row each", columns: columns(), rows: lines, sort: state.get("sort"), onsort: (sort) => { state.set("sort", sort); refresh(); } });
  byId("count").textContent = lines.length === data.lines.length ? plural(lines.length, "row") : `${lines.length} of ${plural(data.lines.length, "row")}`;
  if (window.Plotly) renderIntervals(lines);
  return lines.length;
}

byId("answer").textContent = `Of ${plural(data.lines.length, "row")}, B is ${outcomes.map((outcome) => `${outcome} in ${data.lines.filter((line) => line.outcome === outcome).length}`).join(", ")}.`;
byId("query").addEventListener("input", () => { state.set("q", byId("query").value); say(`${refresh()} shown`); });
whenLookChanges(() => renderIntervals(shownLines()));
addEventListener("hashchange", () => { if (state.read()) { renderPickers(); refresh(); } });
renderPickers();
refresh();
addEventListener("DOMContentLoaded", refresh);
