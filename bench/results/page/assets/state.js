// What is looked at, in the address: it survives a reload and can be linked.
const state = {
  values: new URLSearchParams(),
  get: (key, otherwise = "") => (state.values.has(key) ? state.values.get(key) : otherwise),
  all: (key) => state.values.getAll(key),
  set(key, value) {
    state.values.delete(key);
    for (const one of [value].flat()) if (one !== null && one !== "") state.values.append(key, one);
    const hash = `#${state.values}`;
    if (hash !== (location.hash || "#")) history.replaceState(null, "", hash);
  },
  read() {
    const text = location.hash.slice(1);
    if (text === "main") return false; // the skip link
    state.values = new URLSearchParams(text);
    return true;
  },
};
state.read();
