// Plotly in the colours of the page. Labels are plain text: its own markup is escaped.
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "cross", "triangle-down", "star"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
const COARSE = matchMedia("(pointer: coarse)"); // where a drag scrolls the page
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");

// The value of a colour variable in the theme of now; `light-dark()` is resolved in colours only.
function colour(name) {
  const probe = el("span", { class: "hidden" });
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const look = (i) => ({
  color: colour(`c${i % 8}`),
  symbol: SYMBOLS[i % 8],
  dash: DASHES[Math.floor(i / 8) % 4],
});

// An axis for these numbers: logarithmic where they span much, with a tick at each where they are few.
function spread(numbers) {
  const distinct = [...new Set(numbers)].sort((a, b) => a - b);
  const wide = distinct[0] > 0 && distinct[distinct.length - 1] / distinct[0] >= 8;
  return { type: wide ? "log" : "linear", distinct };
}

function latencyScale(numbers) {
  const { type } = spread(numbers);
  return type === "log" ? { type, dtick: "D2" } : { type, rangemode: "tozero" };
}

function draw(place, traces, { label, x, y, height = 340, shapes = [], annotations = [], barmode, onpick }) {
  const [text, line, faint] = ["text", "line", "muted"].map(colour);
  const axis = (given) => ({
    gridcolor: line, linecolor: line, zerolinecolor: line, tickfont: { color: faint }, automargin: true, fixedrange: false,
    ...given, title: { text: plain(given.title || ""), font: { size: 13 }, standoff: 8 },
  });
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  const layout = {
    height, width: place.clientWidth || undefined, margin: { l: 8, r: 12, t: 12, b: 8 }, showlegend: false, hovermode: "closest", dragmode: COARSE.matches ? false : "zoom",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: "system-ui, sans-serif", size: 12, color: text },
    hoverlabel: { bgcolor: colour("surface"), bordercolor: line, font: { color: text }, align: "left" },
    xaxis: axis(x), yaxis: axis(y), shapes, annotations, barmode,
  };
  const config = { displaylogo: false, responsive: false, displayModeBar: false };
  if (!window.Plotly) return; // it comes, and all is drawn then
  Plotly.react(place, traces, layout, config);
  place.removeAllListeners?.("plotly_click");
  if (onpick) place.on("plotly_click", (event) => event.points[0].customdata && onpick(event.points[0].customdata));
}

// Plotly takes a browser a second to read: it does so when the page is there to be read and used, and then calls `draw`.
function whenChartsCanBeDrawn(draw) {
  addEventListener("load", () => setTimeout(() => {
    document.body.append(el("script", null, byId("plotly").textContent)); // the policy knows its hash
    draw();
  }));
}

// Calls `render(everything)` when charts must be drawn anew: by the theme, the width, or for paper, where
// all of them are wanted, light, and as wide as the page.
function whenLookChanges(render) {
  const name = () => { byId("theme").textContent = `Theme: ${theme.get()}`; };
  name();
  byId("theme").addEventListener("click", () => {
    theme.set(theme.names[(theme.names.indexOf(theme.get()) + 1) % theme.names.length]);
    name();
    render(false);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => render(false));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's address bar
    width = innerWidth;
    render(false);
  });
  addEventListener("beforeprint", () => { document.documentElement.dataset.print = ""; render(true); });
  addEventListener("afterprint", () => { delete document.documentElement.dataset.print; render(false); });
}

const nothing = (place, text) => {
  window.Plotly?.purge(place);
  place.removeAttribute("role");
  place.removeAttribute("aria-label");
  place.replaceChildren(el("p", { class: "empty" }, text));
};
