// Training curves: one trace for each technique and size, in which runs follow each other with a gap between.
"use strict";

Page.roles.curves = (view, data) => {
  const { element, plain, amount, layoutOf, distinct } = Page;
  // A few evaluations make no curve: then the training batches tell more.
  const most = (name) => Math.max(...data.curves.map((curve) => curve[name][0].length));
  let kind = most("validation") >= 5 || most("training") < 2 ? "validation" : "training";
  const controls = element("div", { class: "controls" });
  const plot = element("div", { class: "plot" });

  function groups() {
    const made = new Map();
    for (const curve of data.curves) {
      const [x, y] = curve[kind];
      if (!x.length) continue;
      const key = JSON.stringify([curve.router, curve.size]);
      if (!made.has(key)) {
        const look = data.looks[curve.router] || { colour: "#5e6b7a" };
        made.set(key, {
          type: "scatter", mode: "lines", x: [], y: [], text: [], connectgaps: false, opacity: 0.85,
          line: { color: look.colour, width: 1.2 }, hovertemplate: "%{text}<extra></extra>",
          meta: { router: curve.router, size: curve.size },
        });
      }
      const trace = made.get(key);
      const seed = curve.seed === null ? "" : `, seed ${curve.seed}`;
      const status = curve.status === "finished" ? "" : `, ${curve.status}`;
      const name = `${plain(curve.label)}${seed}${plain(status)}<br>run ${plain(curve.run)}`;
      x.forEach((value, i) => {
        trace.x.push(value);
        trace.y.push(y[i]);
        trace.text.push(`${name}<br>${y[i].toFixed(4)} after ${amount(value)} ${data.abscissa === "tokens" ? "tokens" : "steps"}`);
      });
      trace.x.push(null); trace.y.push(null); trace.text.push("");
      if (x.length === 1) trace.mode = "lines+markers";
    }
    return [...made.values()];
  }

  const shown = {};
  let drawn = [];
  const visible = (meta) => shown.router.has(meta.router) && shown.size.has(meta.size);
  function redraw() {
    drawn = groups().map((trace) => ({ ...trace, visible: visible(trace.meta) }));
    const seen = drawn.flatMap((trace) => trace.x.filter((value) => value !== null));
    const span = [seen.reduce((a, b) => Math.min(a, b)), seen.reduce((a, b) => Math.max(a, b))];
    Plotly.react(plot, drawn, layoutOf({
      xaxis: { type: "log", title: { text: data.abscissa === "tokens" ? "tokens seen" : "step" }, exponentformat: "SI", span },
      yaxis: { type: "log", title: { text: kind === "validation" ? "evaluated loss" : "loss of training batches" } },
    }), Page.CONFIG);
  }
  let ready = false;
  const present = { router: distinct(data.curves.map((c) => c.router)), size: data.sizes.filter((s) => data.curves.some((c) => c.size === s)) };
  for (const key of ["router", "size"]) {
    const look = (value) => (key === "router" && data.looks[value]) || { label: value };
    const { row, on } = Page.chips(key, present[key], look, () => ready && redraw(), key === "router" ? data.hidden : []);
    shown[key] = on;
    if (present[key].length > 1) controls.append(row);
  }
  const kinds = [["validation", "evaluations"], ["training", "training batches, averaged"]];
  const there = kinds.filter(([name]) => data.curves.some((curve) => curve[name][0].length > 1));
  if (there.length > 1) {
    const options = there.map(([value, label]) => ({ value, label }));
    const { row, box } = Page.select("loss", options, (value) => { kind = value; redraw(); });
    box.value = kind;
    controls.append(row);
  }
  view.append(controls, plot);
  ready = true;
  redraw();
};
