// How far the sweep is. While it runs the page loads itself again; what is looked at is in the address.
const RELOAD_S = 20;
const QUIET_S = 5; // since the reader's last action

function ago(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s ago`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}

function renderProgress() {
  const { state: kind, done, expected, written_at: written } = data.progress;
  const place = byId("progress");
  const words = expected === null ? plural(done, "run") : `${done} of ${plural(expected, "run")}`;
  if (kind === "interrupted") place.replaceChildren(el("p", { class: "notice bad" }, `Interrupted after ${words}.`));
  if (kind === "ended" && expected !== null && done < expected) place.replaceChildren(el("p", { class: "notice bad" }, `${words} left a record.`));
  if (kind !== "running") return;
  const age = el("span", { class: "muted" });
  const pause = el("button", { type: "button", class: "quiet", id: "follow", onclick: () => { state.set("follow", paused() ? "" : "off"); show(); } });
  const show = () => {
    age.textContent = `written ${ago((Date.now() - new Date(written)) / 1000)}`;
    pause.textContent = paused() ? "Follow the sweep" : "Pause following";
  };
  place.replaceChildren(el("div", { class: "notice running" }, el("b", null, `Running: ${words}`),
    el("progress", { max: expected, value: done, "aria-label": "runs done" }), age, pause));
  show();
  follow(show);
}

const paused = () => state.get("follow") === "off";

function follow(show) {
  let [loaded, touched] = [performance.now(), -Infinity];
  for (const kind of ["pointerdown", "keydown", "wheel", "scroll"]) addEventListener(kind, () => { touched = performance.now(); }, { passive: true, capture: true });
  const seconds = (since) => (performance.now() - since) / 1000;
  setInterval(() => {
    show();
    if (paused() || document.hidden || seconds(loaded) < RELOAD_S || seconds(touched) < QUIET_S || !getSelection().isCollapsed) return;
    loaded = performance.now();
    remember();
    location.reload();
  }, 1000);
}

// What an address cannot hold, over one reload: where the reader is on the page.
function remember() {
  try {
    sessionStorage.setItem("bench-place", JSON.stringify({ y: scrollY, dialog: byId("cell").scrollTop, focus: document.activeElement.id }));
  } catch { /* no storage: the page starts at its top */ }
}

function recall() {
  try {
    const kept = JSON.parse(sessionStorage.getItem("bench-place"));
    sessionStorage.removeItem("bench-place");
    if (!kept) return;
    if (kept.focus) byId(kept.focus)?.focus({ preventScroll: true });
    scrollTo(0, kept.y);
    byId("cell").scrollTop = kept.dialog;
  } catch { /* nothing kept */ }
}
