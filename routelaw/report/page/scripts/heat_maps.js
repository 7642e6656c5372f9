// Expert load over training, one heat map per routed layer, and the share of assignments dropped below them.
"use strict";

Page.roles["heat-maps"] = (view, data) => {
  const { element, layoutOf, plain } = Page;
  const controls = element("div", { class: "controls" });
  const plot = element("div", { class: "plot tall" });
  const COLOURS = [[0, "#2166ac"], [0.25, "#92c5de"], [0.5, "#f7f7f7"], [0.75, "#f4a582"], [1, "#b2182b"]];
  const SHADES = ["#1c2330", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7B4FA3"];
  const REACH = 3; // octaves either side of an even share

  function draw(run) {
    const layers = run.layers;
    const rows = layers.map((layer) => Math.min(220, Math.max(56, 7 * layer.load.length)));
    const drops = 120, gap = 44;
    const height = rows.reduce((a, b) => a + b + gap, 0) + drops + 90;
    const inner = height - 70;
    const traces = [], layout = { annotations: [] };
    let top = 1;
    layers.forEach((layer, i) => {
      const axis = i ? String(i + 1) : "";
      const bottom = top - rows[i] / inner;
      traces.push({
        type: "heatmap", x: run.steps.map((_, b) => b), y: layer.load.map((_, e) => e), xaxis: "x", yaxis: `y${axis}`,
        z: layer.load.map((line) => line.map((p) => (p > 0 ? Math.max(-REACH, Math.min(REACH, Math.log2(p / 100))) : -REACH))),
        customdata: layer.load, text: layer.load.map((line) => line.map((_, b) => run.steps[b])),
        hovertemplate: `block ${layer.block}, expert %{y}, to step %{text}: %{customdata} % of an even share<extra></extra>`,
        zmin: -REACH, zmax: REACH, colorscale: COLOURS, showscale: i === 0,
        colorbar: { thickness: 10, len: Math.min(1, 180 / inner), y: 1, yanchor: "top", outlinewidth: 0, tickvals: [-3, -2, -1, 0, 1, 2, 3], ticktext: ["⅛", "¼", "½", "even", "2×", "4×", "8×"] },
      });
      layout[`yaxis${axis}`] = { domain: [Math.max(0, bottom), top], anchor: "x", showgrid: false, range: [layer.load.length - 0.5, -0.5], nticks: 5, title: { text: "expert" } };
      layout.annotations.push({ text: `block ${layer.block}`, x: 0, xref: "paper", xanchor: "left", y: top, yref: "paper", yanchor: "bottom", showarrow: false });
      top = bottom - gap / inner;
    });
    const axis = String(layers.length + 1);
    layers.forEach((layer, i) => traces.push({
      type: "scatter", mode: "lines", x: run.steps.map((_, b) => b), y: layer.dropped, xaxis: "x", yaxis: `y${axis}`, text: run.steps,
      line: { color: SHADES[i % SHADES.length], width: 1.5 },
      hovertemplate: `block ${layer.block}, to step %{text}: %{y:.2%} dropped<extra></extra>`,
    }));
    const most = Math.max(...layers.flatMap((layer) => layer.dropped), 0.01);
    layout[`yaxis${axis}`] = { domain: [0, Math.max(0.02, drops / inner)], anchor: "x", tickformat: ".1%", range: [0, most * 1.08], title: { text: "dropped" }, nticks: 4 };
    const marks = run.steps.map((_, b) => b).filter((b) => b % Math.ceil(run.steps.length / (Page.narrow() ? 4 : 8)) === 0);
    layout.xaxis = { anchor: `y${axis}`, title: { text: "step" }, tickvals: marks, ticktext: marks.map((b) => String(run.steps[b])), showgrid: false, range: [-0.5, run.steps.length - 0.5] };
    layout.margin = { l: Page.narrow() ? 46 : 62, r: 12, t: 24, b: 44 };
    plot.style.height = `${height}px`;
    Plotly.react(plot, traces, layoutOf(layout, height), Page.CONFIG);
  }

  const options = data.runs.map((run, i) => ({ value: i, label: `${run.label}${run.seed ? `, seed ${run.seed}` : ""} · ${run.run}` }));
  const { row, box } = Page.select("run", options, (i) => draw(data.runs[i]));
  box.value = data.first;
  controls.append(row);
  view.append(controls, plot);
  draw(data.runs[data.first]);
};
