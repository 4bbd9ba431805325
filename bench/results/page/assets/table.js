// A table that sorts by its headings. A column: {key, label, kind, value(row), text(row), node(row), mark(row)}.
// `kind` is "number" or "text"; value null sorts last; `mark` is "best", "tie" or nothing.
function sorted(rows, column, descending) {
  const sign = descending ? -1 : 1;
  const order = (a, b) => {
    const [x, y] = [column.value(a), column.value(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true }));
  };
  return column ? [...rows].sort(order) : rows;
}

const STARS = { best: ["★", "best"], tie: ["☆", "not told apart from the best"] };

function makeTable(place, { caption, columns, rows, sort, onsort, onopen, rowName }) {
  const [key, descending] = [sort.replace(/^-/, ""), sort.startsWith("-")];
  const heading = (column) => {
    const active = column.key === key;
    const press = () => onsort(active && !descending ? `-${column.key}` : active ? "" : column.key);
    return el("th", { scope: "col", class: column.kind, "aria-sort": active ? (descending ? "descending" : "ascending") : null },
      el("button", { type: "button", "data-column": column.key, onclick: press }, column.label,
        el("span", { class: "arrow", "aria-hidden": "true" }, active ? (descending ? "▼" : "▲") : "↕")),
      el("span", { class: "paper", "aria-hidden": "true" }, column.label)); // a heading with buttons is not repeated on each sheet
  };
  const cell = (column, i, row) => {
    const mark = column.mark?.(row);
    const content = column.node ? column.node(row) : el("span", { class: "value" }, column.text(row));
    const inside = i === 0 && onopen
      ? el("button", { type: "button", class: "open", "aria-haspopup": "dialog", "aria-label": `${column.text(row)}: open cell ${rowName(row)}` }, content)
      : content;
    return el(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: `${column.kind}${mark === "best" ? " best" : ""}` },
      inside, mark ? el("span", { class: "star", role: "img", "aria-label": STARS[mark][1] }, STARS[mark][0]) : null);
  };
  const body = sorted(rows, columns.find((column) => column.key === key), descending).map((row) =>
    el("tr", { "data-id": row.id, class: onopen ? "opens" : null, onclick: onopen ? () => getSelection().isCollapsed && onopen(row) : null },
      columns.map((column, i) => cell(column, i, row))));
  if (!body.length) body.push(el("tr", null, el("td", { colspan: columns.length, class: "empty" }, "Nothing matches. Clear the filters to see all.")));
  const focused = place.contains(document.activeElement) && document.activeElement.dataset.column;
  place.replaceChildren(el("table", { class: "data" }, el("caption", { class: "hidden" }, caption),
    el("thead", null, el("tr", null, columns.map(heading))), el("tbody", null, body)));
  edges(place);
  if (focused) place.querySelector(`[data-column="${CSS.escape(focused)}"]`)?.focus();
}
