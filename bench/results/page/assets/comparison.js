// The page of a comparison: its rows, sorted and filtered, and each ratio with its interval.
const data = JSON.parse(byId("data").textContent);
const LOOKS = { faster: ["✓", "valid"], slower: ["✕", "failed"], higher: ["↑", "same"], lower: ["↓", "same"], same: ["=", "same"], unsure: ["?", "warnings"], lost: ["–", "failed"] };
const MOST = 60; // rows that are drawn
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
    ...(data.gated ? [{ ...text("gate", "gate", (line) => line.gate), node: (line) => (line.gate === "BROKEN" ? el("b", { class: "broken" }, line.gate) : el("span", null, line.gate)) }] : []),
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

// Half and double are as far from 1. Ticks are round ratios, at most so many, 1× among them. An interval of few noisy
// runs leaves the picture rather than press all others together.
function ratioAxis(lines, most) {
  const of = (place) => [1, ...lines.map((line) => line.numbers[place]).filter((ratio) => ratio !== null)];
  const low = Math.max(Math.min(...of(0), ...of(1)), Math.min(...of(0)) / 4);
  const high = Math.min(Math.max(...of(0), ...of(2)), Math.max(...of(0)) * 4);
  const pad = Math.max((high / low) ** 0.06, 1.005);
  const [from, to] = [low / pad, high * pad];
  const decades = (digits) => Array.from({ length: 201 }, (_, k) => digits.map((digit) => Number(`${digit}e${k - 100}`))).flat();
  const evenly = (step) => Array.from({ length: Math.floor(to / step) + 1 }, (_, k) => Number((k * step).toPrecision(6)));
  const steps = high / low < 3 && to < 10 ? [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5].map(evenly) : [];
  const choices = [...steps, decades([1, 2, 5]), decades([1]), decades([1]).filter((_, k) => k % 5 === 0)];
  const inside = choices.map((choice) => choice.filter((ratio) => ratio >= from * pad ** 0.5 && ratio <= to / pad ** 0.5));
  const ticks = inside.find((choice) => choice.length <= most) ?? [1];
  return { type: "log", range: [Math.log10(from), Math.log10(to)], tickmode: "array", tickvals: ticks, ticktext: ticks.map((ratio) => `${ratio}×`) };
}

function renderIntervals(lines) {
  const place = byId("intervals");
  const drawable = lines.filter((line) => line.numbers[0] !== null);
  const most = drawable.slice(0, MOST);
  byId("drawn").textContent = drawable.length > MOST ? `The first ${MOST} of the ${drawable.length} rows.` : "";
  if (!most.length) return nothing(place, "No row with a ratio is shown.");
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
    x: { title: "B / A", ...ratioAxis(most, narrow ? 4 : 9) }, y: { tickmode: "array", tickvals: most.map((_, i) => i), ticktext: most.map((line) => short(line)), range: [most.length - 0.5, -0.5], fixedrange: true },
    shapes: [{ type: "line", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, line: { color: colour("text"), width: 1.5 } }],
  });
  return undefined;
}

function refresh() {
  const lines = shownLines();
  makeTable(byId("main"), { caption: "Metrics of the cells of A, a row each", columns: columns(), rows: lines, sort: state.get("sort"), onsort: (sort) => { state.set("sort", sort); refresh(); } });
  byId("count").textContent = lines.length === data.lines.length ? plural(lines.length, "row") : `${lines.length} of ${plural(data.lines.length, "row")}`;
  renderIntervals(lines);
  return lines.length;
}

byId("answer").textContent = `Of ${plural(data.lines.length, "row")}, B is ${outcomes.map((outcome) => `${outcome} in ${data.lines.filter((line) => line.outcome === outcome).length}`).join(", ")}.`;
byId("query").addEventListener("input", () => { state.set("q", byId("query").value); say(`${refresh()} shown`); });
whenLookChanges(() => renderIntervals(shownLines()));
addEventListener("hashchange", () => { if (state.read()) { renderPickers(); refresh(); } });
renderPickers();
refresh();
whenChartsCanBeDrawn(refresh);
