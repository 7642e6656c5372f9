// Sliders for N and E: every number is looked up in the grid that was computed with the page, at the slider's node.
"use strict";

Page.roles.explorer = (view, data) => {
  const { element, amount, plain, layoutOf } = Page;
  let law = data.laws[0];
  const at = { n: data.start[0], e: data.start[1] };

  function slider(axis, nodes, label) {
    const shown = element("output", { class: "slider-value", data: { shown: axis } });
    const input = element("input", {
      type: "range", min: 0, max: nodes.length - 1, step: 1, value: at[axis], "aria-label": label, data: { axis },
      on: { input: () => { at[axis] = Number(input.value); update(); } },
    });
    return { input, shown, row: element("label", { class: "slider" }, element("span", { text: label }), input, shown) };
  }
  const sliders = { n: slider("n", data.sizes, "active parameters N"), e: slider("e", data.experts, "experts E") };

  const controls = element("div", { class: "controls" });
  const formula = element("p", { class: "soft formula" });
  if (data.laws.length > 1) {
    const options = data.laws.map((one, i) => ({ value: i, label: one.name }));
    controls.append(Page.select("law", options, (i) => { law = data.laws[i]; update(); }).row);
  }
  const body = element("tbody");
  const heads = ["", "predicted loss", `${Math.round(100 * data.level)} % interval`, "effective N̄", "N̄ / N", ""];
  const table = element("table", { class: "readout" }, element("thead", {}, element("tr", {}, ...heads.map((h) => element("th", { text: h })))), body);
  const plot = element("div", { class: "plot" });
  const note = element("p", { class: "soft", data: { what: "note" } });
  view.append(
    controls, element("div", { class: "sliders" }, sliders.n.row, sliders.e.row), formula,
    element("div", { class: "scroll" }, table), plot, note,
  );

  const place = () => at.n * data.experts.length + at.e;
  const read = (grid, what) => (grid[what] ? grid[what][place()] : null);

  // How far a point lies outside what a technique was trained with.
  function beyond(technique, n, e) {
    const said = [];
    const times = (factor) => `${factor >= 10 ? Math.round(factor) : factor.toFixed(1)} times`;
    if (n > technique.sizes[1]) said.push(`N is ${times(n / technique.sizes[1])} its largest size`);
    if (n < technique.sizes[0]) said.push(`N is below its smallest size, ${amount(technique.sizes[0])}`);
    if (e > technique.experts[1]) said.push(`E is beyond its largest, ${technique.experts[1]}`);
    return said.length ? `extrapolates: ${said.join("; ")}` : "within the data";
  }

  function rowOf(technique, n, e) {
    const grid = law.grids[technique.key];
    const name = element("th", { scope: "row" }, element("span", { class: "dot", style: `background:${technique.colour}` }), document.createTextNode(technique.label));
    const cell = (what, text) => element("td", { data: { router: technique.key, what }, text });
    if (!grid) return element("tr", {}, name, element("td", { colspan: 5, class: "soft", text: "not under this law: too few points" }));
    const loss = read(grid, "loss"), effective = read(grid, "effective"), low = read(grid, "low"), high = read(grid, "high");
    const rough = grid.status === "converged" ? "" : " (rough: the fit did not settle)";
    return element("tr", {}, name,
      cell("loss", loss === null ? "–" : loss.toFixed(4)),
      cell("interval", low === null || high === null ? "–" : `${low.toFixed(3)} to ${high.toFixed(3)}`),
      cell("effective", effective === null ? "none" : amount(effective)),
      cell("ratio", effective === null ? "–" : (effective / n).toPrecision(3)),
      element("td", { class: "soft left", data: { router: technique.key, what: "range" }, text: beyond(technique, n, e) + rough }));
  }

  // At the chosen N: each technique's loss over E, with what was measured at a size within 2 % of it.
  function traces(n) {
    const lines = [];
    for (const technique of data.techniques) {
      const grid = law.grids[technique.key];
      if (!grid) continue;
      const from = at.n * data.experts.length;
      const losses = grid.loss.slice(from, from + data.experts.length);
      const last = data.experts.findIndex((e) => e > technique.experts[1]);
      const inside = last < 0 ? losses.length : last;
      const line = (x, y, dash) => ({
        type: "scatter", mode: "lines", x, y, line: { color: technique.colour, width: 1.8, dash },
        hovertemplate: `${plain(technique.label)}, E = %{x}: %{y:.4f}<extra></extra>`, meta: { router: technique.key },
      });
      lines.push(line(data.experts.slice(0, inside), losses.slice(0, inside), "solid"));
      lines.push(line(data.experts.slice(inside - 1), losses.slice(inside - 1), "dot"));
      const near = technique.measured.filter(([size]) => Math.abs(Math.log(size / n)) < 0.02);
      lines.push({
        type: "scatter", mode: "markers", x: near.map((p) => p[1]), y: near.map((p) => p[2]),
        marker: { color: technique.colour, symbol: technique.symbol, size: 8, line: { color: "white", width: 0.7 } },
        hovertemplate: `${plain(technique.label)}, measured, E = %{x}: %{y:.4f}<extra></extra>`,
      });
    }
    return lines;
  }

  function update() {
    const n = data.sizes[at.n], e = data.experts[at.e];
    sliders.n.shown.textContent = amount(n);
    sliders.e.shown.textContent = String(e);
    formula.textContent = `${law.name}: ${law.formula}`;
    body.replaceChildren(...data.techniques.map((technique) => rowOf(technique, n, e)));
    const ticks = data.experts.filter((x) => (x & (x - 1)) === 0);
    const layout = layoutOf({
      xaxis: { type: "log", title: { text: "experts E" }, tickvals: ticks, ticktext: ticks.map(String) },
      yaxis: { type: "log", title: { text: "predicted loss" } },
      shapes: [{ type: "line", x0: e, x1: e, yref: "paper", y0: 0, y1: 1, line: { color: "#5b6575", width: 1, dash: "dash" } }],
    });
    Plotly.react(plot, traces(n), layout, Page.CONFIG);
    const outside = data.techniques.every((t) => law.grids[t.key] && beyond(t, n, e) !== "within the data");
    note.textContent = outside ? "Beyond all data: here the numbers depend on the form of the law as much as on the runs." : "Dotted: more experts than were trained.";
  }
  update();
};
