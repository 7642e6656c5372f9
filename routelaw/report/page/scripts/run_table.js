// The table of runs: a click on a heading sorts, boxes filter. Cells are text nodes, whatever they hold.
"use strict";

Page.roles["run-table"] = (view, data) => {
  const { element, amount, distinct } = Page;
  const MOST = 2000;
  const columns = data.columns;
  const index = Object.fromEntries(columns.map((column, i) => [column.name, i]));
  const sort = { by: null, down: false };
  const wanted = { text: "" };

  function time(seconds) {
    if (seconds < 90) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
    return seconds < 5400 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
  }
  const WRITE = {
    text: String, size: String, number: (v) => String(Number(v.toPrecision(4))), count: (v) => amount(v), loss: (v) => v.toFixed(4),
    share: (v) => `${(100 * v).toFixed(1)} %`, seconds: time,
  };
  const written = (column, value) => (value === null || value === "" ? "" : WRITE[column.kind](value));
  const rows = data.rows.map((cells, i) => ({
    cells, reason: data.reasons[i] || "",
    words: [...cells.map((value, c) => written(columns[c], value)), data.reasons[i] || ""].join(" ").toLowerCase(),
  }));

  function compare(a, b) {
    const column = columns[sort.by];
    let x = a.cells[sort.by], y = b.cells[sort.by];
    const lack = (v) => v === null || v === "";
    if (lack(x) || lack(y)) return lack(x) - lack(y); // what is missing comes last, up or down
    if (column.kind === "size") { x = data.order.size.indexOf(x); y = data.order.size.indexOf(y); }
    const order = typeof x === "number" ? x - y : String(x).localeCompare(String(y));
    return sort.down ? -order : order;
  }

  const body = element("tbody");
  const count = element("p", { class: "soft", data: { what: "count" }, "aria-live": "polite" });
  function update() {
    let kept = rows.filter((row) => {
      if (wanted.text && !wanted.text.toLowerCase().split(/\s+/).every((word) => row.words.includes(word))) return false;
      return data.filters.every((name) => !wanted[name] || String(row.cells[index[name]]) === wanted[name]);
    });
    if (sort.by !== null) kept = [...kept].sort(compare);
    body.replaceChildren(...kept.slice(0, MOST).map((row) => element("tr", { title: row.reason || false },
      ...columns.map((column, c) => {
        const value = row.cells[c];
        const bad = column.name === "status" && row.reason ? " bad" : "";
        return element("td", { class: (["text", "size"].includes(column.kind) ? "left" : "") + bad, text: written(column, value) });
      }))));
    const cut = kept.length > MOST ? `; the first ${MOST} are shown` : "";
    count.textContent = `${kept.length} of ${rows.length} runs${cut}.`;
    heads.forEach((head, c) => head.setAttribute("aria-sort", sort.by === c ? (sort.down ? "descending" : "ascending") : "none"));
  }

  const heads = columns.map((column, c) => element("th", { scope: "col", class: ["text", "size"].includes(column.kind) ? "left" : "", data: { column: column.name } },
    element("button", { type: "button", text: column.heading, on: { click: () => {
      sort.down = sort.by === c ? !sort.down : false;
      sort.by = c;
      update();
    } } })));
  const search = element("input", { type: "search", placeholder: "any text", "aria-label": "text", data: { filter: "text" }, on: { input: () => { wanted.text = search.value.trim(); update(); } } });
  const controls = element("div", { class: "controls" }, element("label", { class: "choice" }, element("span", { class: "chips-name", text: "text" }), search));
  for (const name of data.filters) {
    const values = name === "size" ? data.order.size : distinct(data.rows.map((cells) => cells[index[name]])).sort();
    if (values.length < 2) continue;
    const options = [{ value: "", label: "all" }, ...values.map((value) => ({ value, label: value }))];
    const { row, box } = Page.select(name, options, (value) => { wanted[name] = value; update(); });
    box.dataset.filter = name;
    controls.append(row);
  }
  view.append(controls, count, element("div", { class: "scroll runs", tabindex: 0 }, element("table", { class: "runs" }, element("thead", {}, element("tr", {}, ...heads)), body)));
  update();
};

Page.start();
