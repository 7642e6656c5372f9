// Shared pieces of the page's scripts, and charts with chips that switch what is shown.
// Names come from tables and are never trusted: they reach the page as text nodes, or escaped where Plotly reads HTML.
"use strict";

const Page = (() => {
  const roles = {};
  const narrow = () => window.innerWidth < 640;
  const CONFIG = {
    displaylogo: false,
    displayModeBar: narrow() ? false : "hover",
    responsive: true,
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
    toImageButtonOptions: { format: "svg" },
  };

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "text") made.textContent = value;
      else if (name === "on") Object.entries(value).forEach(([event, act]) => made.addEventListener(event, act));
      else if (name === "data") Object.assign(made.dataset, value);
      else if (value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  // Text that Plotly shows as it stands.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // 854016 as 854K; the unit is that of the rounded number.
  function amount(value, digits = 3) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const rounded = Math.abs(Number(value.toPrecision(digits)));
    for (const [scale, unit] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "K"]]) {
      if (rounded >= scale && rounded < 1e15) return Number((value / scale).toPrecision(digits)) + unit;
    }
    return String(Number(value.toPrecision(digits)));
  }

  // 1, 2, 5, 10, … where an axis spans so much that Plotly would name single digits; else Plotly's own round numbers.
  function logTicks([low, high]) {
    if (!(high / low > 6)) return {};
    const tickvals = [];
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high); decade++) {
      for (const step of [1, 2, 5]) tickvals.push(step * 10 ** decade);
    }
    return { tickvals, ticktext: tickvals.map((value) => amount(value)) };
  }

  const AXIS = { gridcolor: "#eceef2", linecolor: "#9aa3b0", zeroline: false, automargin: true, ticks: "outside", ticklen: 3, tickcolor: "#9aa3b0" };

  function layoutOf(layout, height) {
    const small = narrow();
    const full = {
      font: { family: 'system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif', size: small ? 11 : 12.5, color: "#1c2330" },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: small ? 44 : 60, r: small ? 34 : 48, t: 12, b: small ? 40 : 48 },
      hovermode: "closest",
      hoverlabel: { bgcolor: "#1c2330", bordercolor: "#1c2330", font: { color: "#ffffff", size: 12.5 }, align: "left" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "#9aa3b0", activecolor: "#0b5ca8" },
      showlegend: false,
      dragmode: small ? false : "zoom", // a finger on a phone scrolls the page
      ...layout,
    };
    if (height) full.height = height;
    for (const name of Object.keys(full)) {
      if (/^[xy]axis\d*$/.test(name)) {
        const { span, ...own } = full[name];
        if (span) Object.assign(own, logTicks(span));
        const title = own.title ? { ...own.title, font: { size: small ? 11 : 12.5 }, standoff: 8 } : undefined;
        full[name] = { ...AXIS, ...own, ...(title ? { title } : {}) };
      }
    }
    return full;
  }

  // Chips: what a click switches on and off. Alt- or double-click leaves one alone on, once more brings all back.
  // Those in `hidden` begin switched off, and stand last.
  function chips(name, found, look, changed, hidden = []) {
    const values = [...found.filter((value) => !hidden.includes(value)), ...found.filter((value) => hidden.includes(value))];
    const on = new Set(values.filter((value) => !hidden.includes(value)));
    const buttons = new Map();
    function refresh() {
      buttons.forEach((button, value) => button.setAttribute("aria-pressed", on.has(value)));
      changed(on);
    }
    const row = element("div", { class: "chips", role: "group", "aria-label": name });
    row.append(element("span", { class: "chips-name", text: name }));
    for (const value of values) {
      const { label, colour } = look(value);
      const dot = colour ? element("span", { class: "dot", style: `background:${colour}` }) : null;
      const button = element("button", {
        type: "button",
        class: "chip",
        "aria-pressed": String(on.has(value)),
        title: "click: show or hide; double-click: this one alone",
        data: { chip: name, value },
        on: {
          click: () => { on.has(value) ? on.delete(value) : on.add(value); refresh(); },
          dblclick: () => {
            const alone = on.size === 1 && on.has(value);
            on.clear();
            (alone ? values : [value]).forEach((v) => on.add(v));
            refresh();
          },
        },
      }, dot, document.createTextNode(label));
      buttons.set(value, button);
      row.append(button);
    }
    return { row, on };
  }

  function select(name, options, changed) {
    const box = element("select", { "aria-label": name, data: { select: name }, on: { change: () => changed(box.value) } });
    for (const { value, label } of options) box.append(element("option", { value, text: label }));
    return { row: element("label", { class: "choice" }, element("span", { class: "chips-name", text: name }), box), box };
  }

  const distinct = (values) => [...new Set(values.filter((value) => value !== undefined))];

  roles.chart = (view, data) => {
    const controls = element("div", { class: "controls" });
    const plot = element("div", { class: "plot" });
    const shown = {};
    let chosen = data.select ? data.select.values[0] : null;
    const visible = (meta) => {
      const fits = !data.select || meta[data.select.name] === undefined || meta[data.select.name] === chosen;
      return fits && data.chips.every((key) => meta[key] === undefined || shown[key].has(meta[key]));
    };
    const drawn = () => data.traces.map((trace) => ({ ...trace, visible: visible(trace.meta) }));
    const redraw = () => Plotly.restyle(plot, { visible: data.traces.map((trace) => visible(trace.meta)) });
    let ready = false;
    for (const key of data.chips) {
      const values = distinct(data.traces.map((trace) => trace.meta[key]));
      const look = (value) => (key === "router" && data.looks[value]) || { label: value };
      const { row, on } = chips(key, values, look, () => ready && redraw(), key === "router" ? data.hidden : []);
      shown[key] = on;
      if (values.length > 1) controls.append(row);
    }
    if (data.select) {
      const options = data.select.values.map((value) => ({ value, label: value }));
      controls.append(select(data.select.name, options, (value) => { chosen = value; redraw(); }).row);
    }
    view.append(controls, plot);
    if (data.height) plot.style.height = `${data.height}px`;
    Plotly.newPlot(plot, drawn(), layoutOf(data.layout, data.height), CONFIG);
    ready = true;
  };

  // Each part is drawn when it comes near the screen: a page with many of them opens at once.
  function start() {
    const draw = (view) => {
      if (view.dataset.drawn) return;
      view.dataset.drawn = "yes";
      view.replaceChildren();
      roles[view.dataset.role](view, JSON.parse(document.getElementById(view.dataset.from).textContent));
    };
    const watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) { watcher.unobserve(entry.target); draw(entry.target); }
    }, { rootMargin: "800px" });
    const views = document.querySelectorAll(".interactive");
    views.forEach((view) => watcher.observe(view));
    window.addEventListener("beforeprint", () => views.forEach(draw));
  }

  return { roles, element, plain, amount, layoutOf, chips, select, distinct, narrow, CONFIG, start };
})();
