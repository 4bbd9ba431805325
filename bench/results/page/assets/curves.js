// A cell's middle run as curves: its latencies, how it went over its time, how busy GPU and host were.
const digits = (number) => String(Number(number.toPrecision(4)));
const keys = (entries, name) => el("div", { class: "legend keys" }, name ? el("b", null, name) : null, entries.map(([i, text]) => el("span", { class: "key" }, el("i", { class: "dot", color: `var(--c${i})` }), text)));
const middleRun = (cell) => (cell.runs.length === 1 ? "the run" : `run ${cell.runs[cell.curves.run].name}, the one with the middle average latency`);

const percentilesOf = (cell) => [["min_latency", 0, "lowest"], ...Object.entries(data.percentiles).map(([name, quantile]) => [`latency_${name}`, quantile, name.replace("_", ".")]), ["max_latency", 1, "highest"]]
  .filter(([name]) => cell.metrics[name]).map(([name, quantile, text]) => ({ statistic: cell.metrics[name], quantile, text }));

function distributionOf(cell) {
  if (!cell.curves && percentilesOf(cell).length < 3) return [];
  const means = cell.n > 1 ? `, means of ${cell.n} runs ± standard deviation` : "";
  const line = cell.curves ? `Line: the ${plural(cell.curves.requests, "request")} of ${middleRun(cell)}. ` : "";
  return [el("div", { id: "distribution" }), el("p", { class: "muted small" }, line, percentilesOf(cell).length ? `Diamonds: percentiles${means}. ` : "", "Each further nine is as far away as the last.")];
}

function courseOf(cell) {
  if (!cell.curves) return data.curves_left_out && cell.n ? [el("p", { class: "muted small" }, data.curves_left_out)] : [];
  const { course, requests, telemetry } = cell.curves;
  const each = Math.ceil(requests / course.time.length);
  const rates = [[0, "answered"], ...(course.asked ? [[1, "asked for by the load"]] : [])];
  return [
    el("h3", null, "Over the time of a run"), keys(each > 1 ? [[0, `latency, median of ${each} requests`], [1, "the highest of them"]] : [[0, "latency of each request"]]),
    el("div", { id: "course-latency" }), keys(rates), el("div", { id: "course-rate" }),
    el("p", { class: "muted small" }, `Of ${middleRun(cell)}, at the time of the answers. Dashed: throughput of the whole run.`),
    ...(telemetry ? [el("h3", null, "Utilization over the time of a run"), ...data.telemetry.flatMap((row, k) => {
      const there = row.columns.filter(({ name }) => telemetry[name]);
      return there.length ? [keys(there.map(({ words, colour: i }) => [i, words]), row.axis), el("div", { id: `telemetry-${k}` })] : [];
    })] : []),
  ];
}

function renderCurves(cell) {
  renderDistribution(cell);
  if (!cell.curves) return;
  const x = { title: "", range: [0, 1.02 * cell.curves.course.end] };
  renderLatencies(cell, x);
  renderRates(cell, x);
  if (cell.curves.telemetry) renderTelemetry(cell.curves.telemetry, x);
}

// On an axis on which each further nine (90 %, 99 %, 99.9 %) is as far away as the last: 100 % never comes.
function renderDistribution(cell) {
  const place = byId("distribution");
  const [points, curves] = [percentilesOf(cell), cell.curves];
  if (!place) return;
  const requests = curves ? curves.requests : 3 / (1 - Math.max(...points.map(({ quantile }) => (quantile < 1 ? quantile : 0))));
  const top = 1 - 0.5 / Math.max(2, requests);
  const nines = (share) => -Math.log10(1 - Math.min(share, top));
  const ticks = [0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999].filter((share) => share < top);
  const traces = [];
  if (curves) {
    const shares = curves.rank.map((rank) => rank / curves.requests);
    traces.push({
      type: "scatter", mode: "lines", x: [curves.latency[0], ...curves.latency], y: [0, ...shares.map(nines)], line: { color: look(0).color, shape: "hv" }, hoverinfo: "text",
      hovertext: ["", ...curves.latency.map((latency, k) => `${digits(100 * shares[k])} % within ${latency} s`)],
    });
  }
  const color = look(curves ? 1 : 0).color;
  traces.push({
    type: "scatter", mode: curves ? "markers" : "lines+markers", x: points.map(({ statistic }) => statistic[0]), y: points.map(({ quantile }) => nines(quantile)),
    error_x: { array: points.map(({ statistic }) => statistic[1] || 0), color, thickness: 1, width: 3 }, line: { color },
    marker: { color, size: 8, symbol: "diamond" }, hoverinfo: "text", hovertext: points.map(({ statistic, text }) => `${text}: ${statistic[3]} s`),
  });
  draw(place, traces, {
    label: "Distribution of latencies, whose percentiles the table below holds", height: 280,
    x: { title: "latency (s)", ...latencyScale([...(curves ? curves.latency : []), ...points.map(({ statistic }) => statistic[0])]) },
    y: { title: "requests answered within (%)", tickvals: ticks.map(nines), ticktext: ticks.map((share) => digits(100 * share)), range: [-0.04 * nines(1), 1.04 * nines(1)] },
  });
}

function renderLatencies(cell, x) {
  const { course, requests } = cell.curves;
  const several = requests > course.time.length;
  const trace = (values, i, words) => ({
    type: "scatter", mode: "lines+markers", x: course.time, y: values, line: { color: look(i).color, width: 1 }, marker: { color: look(i).color, symbol: look(i).symbol, size: 5 },
    hoverinfo: "text", hovertext: values.map((value, k) => `at ${course.time[k]} s: ${words}${value} s`),
  });
  const traces = several ? [trace(course.median, 0, "median "), trace(course.highest, 1, "highest ")] : [trace(course.median, 0, "")];
  const all = traces.flatMap(({ y }) => y);
  const burst = (cell.settings["load.name"] || data.settings["load.name"]) === "burst"; // a backlog grows in a straight line
  draw(byId("course-latency"), traces, { label: "Latency over the time of a run", height: 210, x, y: { title: "latency (s)", ...(burst ? { rangemode: "tozero" } : latencyScale(all)) } });
}

function renderRates(cell, x) {
  const { course, run } = cell.curves;
  const step = course.end / course.rate.length;
  const trace = (values, i, dash, words) => ({
    type: "scatter", mode: "lines", x: [...values.map((_, k) => k * step), course.end], y: [...values, values.at(-1)], line: { color: look(i).color, shape: "hv", dash }, hoverinfo: "text",
    hovertext: [...values, values.at(-1)].map((value, k) => `${digits(Math.min(k, values.length - 1) * step)} to ${digits(Math.min(k + 1, values.length) * step)} s: ${value} samples/s ${words}`),
  });
  const mean = cell.runs[run].metrics.throughput;
  const line = { type: "line", xref: "paper", x0: 0, x1: 1, y0: mean, y1: mean, line: { color: colour("muted"), width: 1, dash: "dash" } };
  draw(byId("course-rate"), [trace(course.rate, 0, "solid", "answered"), ...(course.asked ? [trace(course.asked, 1, "dot", "asked for")] : [])], {
    label: "Throughput over the time of a run", height: 190, x: { ...x, title: "time since the first request was sent (s)" }, y: { title: "samples/s", rangemode: "tozero" }, shapes: mean ? [line] : [],
  });
}

function renderTelemetry(telemetry, x) {
  const rows = data.telemetry.map((row, k) => [row, byId(`telemetry-${k}`)]).filter(([, place]) => place);
  rows.forEach(([row, place], k) => {
    const traces = row.columns.filter(({ name }) => telemetry[name]).map(({ name, words, colour: i, dashed }) => ({
      type: "scatter", mode: "lines", x: telemetry.time, y: telemetry[name], connectgaps: true, line: { color: look(i).color, dash: dashed ? "dash" : "solid" }, hoverinfo: "text",
      hovertext: telemetry[name].map((value, j) => `at ${telemetry.time[j]} s: ${plain(words)} ${value}`),
    }));
    const most = Math.max(row.top, ...traces.flatMap(({ y }) => y));
    draw(place, traces, { label: `${row.axis} over the time of a run`, height: 150, x: { ...x, title: k === rows.length - 1 ? "time since the first request was sent (s)" : "" }, y: { title: "", range: [0, 1.07 * most || 1] } });
  });
}

// Again, where a cell is in sight: in the dialog, or alone on its page.
function redrawCurves() {
  const id = data.cells.length === 1 ? data.cells[0].id : state.get("cell");
  const cell = data.cells.find((one) => one.id === id);
  if (cell) renderCurves(cell);
}
