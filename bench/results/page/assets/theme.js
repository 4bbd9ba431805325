// In the head, so that a chosen theme is there before the first paint. "auto" follows the system.
const theme = {
  names: ["auto", "light", "dark"],
  get() {
    try { return localStorage.getItem("bench-theme") || "auto"; } catch { return theme.kept || "auto"; }
  },
  set(name) {
    theme.kept = name;
    try { localStorage.setItem("bench-theme", name); } catch { /* no storage: for this visit only */ }
    theme.apply(name);
  },
  apply(name) {
    document.documentElement.dataset.theme = name;
  },
};
theme.apply(theme.get());
