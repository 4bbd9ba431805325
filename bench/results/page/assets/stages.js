// Where the latency goes: the stages of each cell, stacked to its average latency.
const MOST_BARS = 30;
const stageDot = (stage) => el("i", { class: "dot", color: `var(--${stage})`, "data-hatch": data.stages[stage].hatch });

function renderStages(all) {
  const place = byId("stages");
  const cells = all.filter((cell) => Object.keys(cell.shares).length && cell.metrics.average_latency);
  const most = cells.slice(0, MOST_BARS);
  const varying = axes.filter((axis) => axis.values.length > 1).map((axis) => axis.name);
  byId("stages-note").textContent = `Cells go by ${varying.join(", ")}, in the order of the table.${cells.length > most.length ? ` The first ${most.length} of ${cells.length}: filter or sort it.` : ""}`;
  if (!most.length) return nothing(place, "None of the cells shown has stages.");
  const limit = place.clientWidth < 600 ? 20 : 60;
  const short = (text) => plain(text.length > limit ? `${text.slice(0, limit - 1)}…` : text);
  const traces = Object.entries(data.stages).map(([stage, { name, hatch }]) => ({
    type: "bar", orientation: "h", name: plain(name), y: most.map((_, k) => k), x: most.map((cell) => 100 * (cell.shares[stage] || 0)), customdata: most.map((cell) => cell.id),
    marker: { color: colour(stage), pattern: { shape: hatch, fillmode: "overlay", fgcolor: colour("surface"), fgopacity: 0.7, size: 6, solidity: 0.25 }, line: { color: colour("surface"), width: 1 } }, hoverinfo: "text",
    hovertext: most.map((cell) => [cell.label, `${name}: ${(100 * (cell.shares[stage] || 0)).toFixed(1)} %`, ...(cell.metrics[stage] ? [`${cell.metrics[stage][3]} s`] : [])].map(plain).join("<br>")),
  }));
  draw(place, traces, {
    label: `Share of each stage in the latency of ${most.length} cells; a cell's own view holds the values`, height: 80 + 26 * most.length, barmode: "stack", onpick: openCell,
    x: { title: "share of the average latency (%)", range: [0, 100], fixedrange: true },
    y: { tickmode: "array", tickvals: most.map((_, k) => k), ticktext: most.map((cell) => short(varying.map((name) => cell.values[name]).join(", "))), range: [most.length - 0.5, -0.5], fixedrange: true },
  });
  byId("stages-legend").replaceChildren(...Object.entries(data.stages).map(([stage, { name }]) => el("span", { class: "key" }, stageDot(stage), name)));
  return undefined;
}
