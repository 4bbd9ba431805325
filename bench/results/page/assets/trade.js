// Throughput against the tail of the latency, and the runs in the order in which they ran.
const TAILS = ["latency_p99", "latency_p95", "latency_p90", "latency_p50", "average_latency"];

// The highest percentile that most of the cells have.
function tailOf(cells) {
  const count = (name) => cells.filter((cell) => cell.metrics[name]).length;
  const most = Math.max(...TAILS.map(count));
  return TAILS.find((name) => count(name) && count(name) >= 0.5 * most);
}

// Cells that no other beats in both: from the lowest latency on, each that raises the throughput.
function frontier(cells, tail) {
  const [latency, speed] = [(cell) => cell.metrics[tail][0], (cell) => cell.metrics.throughput[0]];
  let most = -Infinity;
  return [...cells].sort((a, b) => latency(a) - latency(b) || speed(b) - speed(a)).filter((cell) => {
    if (speed(cell) <= most) return false;
    most = speed(cell);
    return true;
  });
}

function renderTrade(all) {
  const place = byId("trade");
  const tail = tailOf(all.filter((cell) => cell.metrics.throughput));
  const cells = all.filter((cell) => tail && cell.metrics[tail] && cell.metrics.throughput);
  byId("trade-note").replaceChildren();
  if (!cells.length) return nothing(place, "None of the cells shown has a throughput and a latency.");
  const best = frontier(cells, tail);
  const { line } = view();
  const colours = axes.find((axis) => axis.name === line);
  const index = (cell) => (colours ? colours.values.indexOf(cell.values[line]) : 0);
  const groups = [...new Set(cells.map(index))].sort((a, b) => a - b).map((i) => [i, cells.filter((cell) => index(cell) === i)]);
  const points = groups.map(([i, mine]) => ({
    type: "scatter", mode: "markers", customdata: mine.map((cell) => cell.id), x: mine.map((cell) => cell.metrics[tail][0]), y: mine.map((cell) => cell.metrics.throughput[0]),
    error_x: { array: mine.map((cell) => cell.metrics[tail][1] || 0), color: look(i).color, thickness: 1, width: 0 },
    error_y: { array: mine.map((cell) => cell.metrics.throughput[1] || 0), color: look(i).color, thickness: 1, width: 0 },
    marker: { color: look(i).color, symbol: look(i).symbol, size: mine.map((cell) => (best.includes(cell) ? 12 : 7)), opacity: mine.map((cell) => (best.includes(cell) ? 1 : 0.6)) },
    hoverinfo: "text", hovertext: mine.map((cell) => hover(cell, ["throughput", tail])),
  }));
  const edge = { type: "scatter", mode: "lines", hoverinfo: "skip", line: { color: colour("text"), width: 1.5, dash: "dot", shape: "hv" }, x: best.map((cell) => cell.metrics[tail][0]), y: best.map((cell) => cell.metrics.throughput[0]) };
  const scale = latencyScale(cells.map((cell) => cell.metrics[tail][0]));
  const slo = data.slo_ms === null ? [] : [{ type: "line", x0: data.slo_ms / 1000, x1: data.slo_ms / 1000, yref: "paper", y0: 0, y1: 1, line: { color: colour("bad"), width: 1.5, dash: "dash" } }];
  const words = data.slo_ms === null ? [] : [{ x: scale.type === "log" ? Math.log10(data.slo_ms / 1000) : data.slo_ms / 1000, xref: "x", yref: "paper", y: 1, text: `SLO ${data.slo_ms} ms`, showarrow: false, xanchor: "left", yanchor: "top", font: { color: colour("bad") } }];
  draw(place, [edge, ...points], {
    label: `Throughput against ${metricOf(tail).text} of ${cells.length} cells; ${best.length} on the frontier, which are named below`,
    x: { title: metricOf(tail).heading, ...scale }, y: { title: metricOf("throughput").heading, rangemode: "tozero" }, shapes: slo, annotations: words, height: 400, onpick: openCell,
  });
  const button = (cell) => el("button", { type: "button", class: "link", onclick: () => openCell(cell.id) }, cell.label || "the one cell");
  byId("trade-note").append(
    "On the dotted frontier no other cell has both more throughput and less latency: ",
    ...best.slice(0, 10).flatMap((cell, i) => [i ? ", " : "", button(cell)]), best.length > 10 ? ` and ${best.length - 10} more.` : ".",
    data.burst ? " Under load=burst the latency is the backlog: how long the last of all requests waits." : "",
    colours && groups.length > 1 ? ` Colours: ${line}, as in the chart above.` : "");
}

function renderOrder(all) {
  const place = byId("order");
  const metric = "throughput";
  const { line } = view();
  const colours = axes.find((axis) => axis.name === line);
  const points = all.filter((cell) => cell.metrics[metric]).flatMap((cell) =>
    cell.runs.filter((run) => run.status === "valid" && metric in run.metrics).map((run) => ({
      id: cell.id, time: run.started_at, ratio: run.metrics[metric] / cell.metrics[metric][0], i: colours ? colours.values.indexOf(cell.values[line]) : 0,
      text: [cell.label, `repeat ${run.repeat}, started ${run.started_at.slice(0, 19)}`, `${metricOf(metric).heading}: ${run.texts[metric]}`].map(plain).join("<br>"),
    })));
  if (points.length < 2) return nothing(place, "Fewer than two valid runs are shown.");
  const groups = [...new Set(points.map((point) => point.i))].sort((a, b) => a - b).map((i) => [i, points.filter((point) => point.i === i)]);
  const traces = groups.map(([i, mine]) => ({
    type: "scatter", mode: "markers", x: mine.map((point) => new Date(point.time)), y: mine.map((point) => point.ratio), customdata: mine.map((point) => point.id),
    marker: { color: look(i).color, symbol: look(i).symbol, size: 6, opacity: 0.75 }, hoverinfo: "text", hovertext: mine.map((point) => point.text),
  }));
  draw(place, traces, {
    label: `Throughput of ${points.length} runs over the mean of their cells, by time`,
    x: { title: "start of the run", type: "date" }, y: { title: "throughput / mean of its cell", tickformat: ".3~g" }, height: 280, onpick: openCell,
  });
}
