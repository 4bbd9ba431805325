// Elements whose content is text, never markup: what a user wrote stays what it is.
const byId = (id) => document.getElementById(id);

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "width") node.style.width = value;
    else if (name === "color") node.style.setProperty("--color", value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const say = (text) => { byId("status").textContent = text; };
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

// A check box in a list of choices.
function choice(text, checked, onchange) {
  const box = el("input", { type: "checkbox", onchange: () => onchange(box.checked) });
  box.checked = checked;
  return el("label", { class: "choice" }, box, el("span", null, text));
}

// A drop-down of choices, each [value, text]; `groups` maps a heading to such choices.
function picker(text, groups, chosen, onchange) {
  const option = ([value, name]) => {
    const node = el("option", { value }, name);
    node.selected = value === chosen;
    return node;
  };
  const content = Object.entries(groups).map(([name, choices]) =>
    name ? el("optgroup", { label: name }, choices.map(option)) : choices.map(option));
  const select = el("select", { onchange: () => onchange(select.value) }, content.flat());
  return el("label", { class: "field" }, text, select);
}

// A frame around `place`, which scrolls, with a shadow at each side where what is in it goes on.
const framed = new WeakMap();
function edges(place) {
  if (!framed.has(place)) {
    const frame = el("div", { class: "edges" });
    place.replaceWith(frame);
    frame.append(place);
    const mark = () => {
      const beyond = place.scrollWidth - place.clientWidth - place.scrollLeft;
      frame.dataset.cut = [place.scrollLeft > 1 ? "left" : "", beyond > 1 ? "right" : ""].join(" ").trim();
      frame.style.setProperty("--bar", `${place.offsetWidth - place.clientWidth - 2}px`);
    };
    place.addEventListener("scroll", mark, { passive: true });
    framed.set(place, new ResizeObserver(mark)); // which looks when all has its place, and delays nothing
    framed.get(place).observe(place);
  }
  framed.get(place).observe(place.firstElementChild);
  return place.parentElement;
}

// Menus close by Escape and by a click beside them.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});
