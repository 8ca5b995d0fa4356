// Curves: one card per chart, all with the same cursor over steps.
const CHARTS = [
  ["Reward", ["reward/mean", "reward/min", "reward/max", "reward/greedy_mean", "eval/reward_mean"]],
  ["Rewards, each by itself", ["reward/part/*/mean"]],
  ["Right answers", ["eval/pass@1", "reward/pass_fraction"]],
  ["KL per token", ["kl/token_mean"]],
  ["KL per rollout", ["kl/rollout_mean"]],
  ["KL coefficient", ["kl/beta"]],
  ["Entropy", ["policy/entropy"]],
  ["Length", ["length/mean", "length/min", "length/max", "length/right_mean", "length/wrong_mean", "eval/length_mean"]],
  ["Cut off by the limit", ["length/truncated_fraction", "eval/truncated_fraction"]],
  ["Groups without spread", ["reward/zero_spread_fraction", "reward/all_right_fraction", "reward/all_wrong_fraction"]],
  ["Spread of rewards in a group", ["reward/group_std_mean", "reward/std"]],
  ["Clip fraction", ["clip/low_fraction", "clip/high_fraction"]],
  ["Probability ratio", ["ratio/mean", "ratio/min", "ratio/max"]],
  ["Loss", ["policy/loss", "policy/token_loss", "dpo/loss", "eval/dpo_loss"]],
  ["Gradient norm", ["grad/norm"]],
  ["Advantage", ["advantage/std", "advantage/mean"]],
  ["Diversity", ["diversity/distinct_1", "diversity/distinct_2", "diversity/group_distinct_fraction", "diversity/repeated_4_fraction", "diversity/self_bleu"]],
  ["Drift of the reference", ["reference/drift_abs_max"]],
  ["Sampler against trainer", ["sampler/gap_abs_mean", "sampler/gap_abs_max"]],
  ["Learning rate", ["training/learning_rate"]],
  ["Preference accuracy", ["dpo/accuracy", "eval/dpo_accuracy"]],
  ["Preference margin", ["dpo/margin_mean", "eval/dpo_margin_mean"]],
  ["Critic", ["critic/loss", "critic/explained_variance"]],
  ["Seconds by phase", ["time/generate_seconds", "time/reward_seconds", "time/logprobs_seconds", "time/critic_seconds", "time/update_seconds", "time/record_seconds", "time/evaluate_seconds", "time/step_seconds"]],
  ["Tokens per second", ["tokens/per_second"]],
  ["Memory, MB", ["memory/peak_rss_mb"]],
];
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "", "6 3", "2 3", "8 3 2 3"];
const [W, H, LEFT, RIGHT, TOP, BOTTOM] = [360, 168, 46, 8, 12, 20];
const charts = [];
const view = { smooth: 1, log: false };
const lastStep = Math.max(1, ...runs.map((run) => run.metrics.steps.at(-1) ?? 0));
const firstStep = Math.min(lastStep, ...runs.map((run) => run.metrics.steps[0] ?? 0));

function points(run, name) {
  const series = run.metrics.series[name];
  if (!series) return [];
  const steps = series.x || run.metrics.steps;
  return series.y.flatMap((y, i) => (y === null ? [] : [[steps[i], real(y)]]));
}
const matching = (pattern) => {
  const [before, after] = pattern.split("*");
  const names = new Set(runs.flatMap((run) => Object.keys(run.metrics.series)));
  return after === undefined
    ? [...names].filter((name) => name === pattern)
    : [...names].filter((name) => name.startsWith(before) && name.endsWith(after) && name.length > pattern.length - 1);
};

function smoothed(line, width) {
  if (width < 2) return line;
  const half = Math.floor(width / 2);
  return line.map(([x], i) => {
    const near = line.slice(Math.max(0, i - half), i + half + 1).map((p) => p[1]).filter(Number.isFinite);
    return [x, near.length ? near.reduce((a, b) => a + b, 0) / near.length : NaN];
  });
}

function ticks(low, high, count) {
  const rough = (high - low) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((s) => s >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(k * step);
  return found.map((t) => Number(t.toPrecision(12)));
}

// Texts for ticks, with as many digits as it takes for neighbours to differ.
function tickTexts(values) {
  for (let digits = 3; digits < 12; digits++) {
    const texts = values.map((value) => shown(value, digits));
    if (new Set(texts).size === texts.length) return texts;
  }
  return values.map(String);
}

class Chart {
  constructor(title, entries) {
    this.title = title;
    this.entries = entries; // {run, name, label, color}
    this.list = el("ul", { class: "legend" });
    this.svg = svg("svg", {
      viewBox: `0 0 ${W} ${H}`, tabindex: 0, role: "slider", "aria-label": `${title}, curve over steps`,
      "aria-valuemin": firstStep, "aria-valuemax": lastStep, "aria-valuenow": lastStep, class: "curve",
      onpointermove: (event) => this.point(event), onpointerdown: (event) => this.point(event),
      onpointerleave: () => setCursor(null), onkeydown: (event) => this.key(event),
    });
    const names = [...new Set(entries.map((entry) => entry.name))];
    const meaning = names.map((name) => [name, runs.map((run) => run.metrics.about[name]).find(Boolean)]).filter((m) => m[1]);
    this.node = el("article", { class: "chart" }, el("h3", {}, title), this.svg, this.list,
      meaning.length ? el("details", {}, el("summary", {}, "What is this?"),
        el("dl", {}, meaning.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]))) : null);
    this.draw();
  }

  draw() {
    const lines = this.entries.map((entry) => points(runs[entry.run], entry.name));
    const values = lines.flat().map((p) => p[1]).filter(Number.isFinite);
    this.log = view.log && values.length > 0 && values.every((v) => v > 0);
    const scale = this.log ? Math.log10 : (v) => v;
    let low = Math.min(...(values.length ? values.map(scale) : [0]));
    let high = Math.max(...(values.length ? values.map(scale) : [1]));
    if (high - low < 1e-12 * Math.max(1, Math.abs(high))) [low, high] = [low - (Math.abs(low) || 1) * 0.5, high + (Math.abs(high) || 1) * 0.5];
    else [low, high] = [low - (high - low) * 0.04, high + (high - low) * 0.04];
    this.x = (step) => LEFT + ((step - firstStep) / Math.max(1, lastStep - firstStep)) * (W - LEFT - RIGHT);
    this.y = (v) => H - BOTTOM - ((scale(v) - low) / (high - low)) * (H - TOP - BOTTOM);
    const parts = [];
    const levels = ticks(low, high, 3).map((tick) => (this.log ? 10 ** tick : tick));
    const texts = tickTexts(levels);
    levels.forEach((value, i) => {
      const y = this.y(value);
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: y, y2: y }));
      parts.push(svg("text", { x: LEFT - 5, y: y + 4, "text-anchor": "end" }, texts[i]));
    });
    for (const tick of ticks(firstStep, lastStep, 4).filter(Number.isInteger)) {
      parts.push(svg("text", { x: Math.min(this.x(tick), W - 12), y: H - 5, "text-anchor": "middle" }, tick));
    }
    parts.push(...this.markers());
    lines.forEach((line, i) => parts.push(...this.curve(line, this.entries[i])));
    this.cursor = svg("line", { class: "cursor", y1: TOP, y2: H - BOTTOM });
    this.svg.replaceChildren(...parts, this.cursor);
    this.tell(null);
  }

  curve(line, entry) {
    const parts = [];
    const finite = (part) => part.filter((p) => Number.isFinite(p[1]));
    const path = (part) => {
      let pen = "M";
      return part.map(([x, v]) => {
        if (!Number.isFinite(v)) { pen = "M"; return ""; }
        const text = `${pen}${this.x(x).toFixed(1)} ${this.y(v).toFixed(1)}`;
        pen = "L";
        return text;
      }).join("");
    };
    const style = (node) => { node.style.stroke = color(entry.color); return node; };
    if (view.smooth > 1) parts.push(style(svg("path", { class: "line raw", d: path(line) })));
    const main = smoothed(line, view.smooth);
    parts.push(style(svg("path", { class: "line", d: path(main), "stroke-dasharray": DASHES[entry.dash ?? 0] || null })));
    const few = finite(main);
    if (few.length <= 40) {
      for (const [x, v] of few) {
        const dot = svg("circle", { cx: this.x(x), cy: this.y(v), r: few.length <= 12 ? 2.6 : 1.4 });
        dot.style.fill = color(entry.color);
        parts.push(dot);
      }
    }
    for (const [x, v] of line.filter((p) => !Number.isFinite(p[1]))) {
      const text = svg("text", { x: this.x(x), y: TOP + 9, "text-anchor": "middle", class: "notfinite" }, "\u2715", svg("title", {}, `step ${x}: ${shown(v)}`));
      text.style.fill = "var(--critical)";
      parts.push(text);
    }
    return parts;
  }

  markers() {
    const mine = new Set(this.entries.map((entry) => entry.name));
    return runs.flatMap((run, r) => marks(run).map((mark) => {
      const x = this.x(mark.step);
      const about = mark.names.some((name) => mine.has(name)) || mine.has("reward/mean");
      const line = svg("line", { x1: x, x2: x, y1: TOP - 4, y2: H - BOTTOM, "stroke-width": about ? 1.6 : 1, "stroke-dasharray": about ? null : "1 4" });
      const top = mark.severity === "action" ? `M${x} ${TOP - 12}l5 5l-5 5l-5-5z` : `M${x - 5} ${TOP - 11}h10l-5 8z`;
      const head = svg("path", { d: top });
      line.style.stroke = head.style.fill = `var(--${mark.severity})`;
      return svg("g", { class: "mark" }, svg("title", {}, `${several ? `${run.name}, ` : ""}step ${mark.step}: ${mark.text}`), line, head);
    }));
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * W;
    setCursor(firstStep + ((x - LEFT) / (W - LEFT - RIGHT)) * (lastStep - firstStep));
  }

  key(event) {
    const now = state.cursor ?? lastStep;
    const far = Math.max(1, Math.round((lastStep - firstStep) / 10));
    const to = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, Home: firstStep, End: lastStep, PageUp: now + far, PageDown: now - far }[event.key];
    if (event.key === "Escape") setCursor(null);
    else if (event.key === "Enter") openStep(now);
    else if (to !== undefined) setCursor(to);
    else return;
    event.preventDefault();
  }

  tell(step) {
    const said = [];
    this.list.replaceChildren(...this.entries.map((entry) => {
      const line = points(runs[entry.run], entry.name).filter((p) => step === null || p[0] <= step);
      const [x, v] = line.at(-1) || [null, null];
      const number = x === null ? "no value" : `${shown(v)}${step !== null && x !== step ? ` (step ${x})` : ""}`;
      said.push(`${entry.label} ${number}`);
      return el("li", {}, swatch(entry.color), `${entry.label} `, el("b", {}, number));
    }));
    this.svg.setAttribute("aria-valuenow", step ?? lastStep);
    this.svg.setAttribute("aria-valuetext", `step ${step ?? lastStep}: ${said.join(", ")}`);
    this.cursor.style.visibility = step === null ? "hidden" : "visible";
    if (step !== null) for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, this.x(step));
  }
}

const state = { cursor: null };
function setCursor(step) {
  const to = step === null ? null : Math.min(lastStep, Math.max(firstStep, Math.round(step)));
  if (to === state.cursor) return;
  state.cursor = to;
  for (const chart of charts) if (chart.node.isConnected) chart.tell(to);
}

function marks(run) {
  const { findings, events } = run.happenings;
  return [
    ...findings.map((f) => ({ step: f.begins, severity: ["info", "warning", "critical"].includes(f.severity) ? f.severity : "warning", names: Object.keys(f.evidence), text: `${f.severity} ${f.check}: ${f.summary}` })),
    ...events.map((e) => ({ step: e.step, severity: "action", names: [], text: `${e.kind.replaceAll("_", " ")}: ${e.sentence}` })),
  ];
}

function cards(title, names) {
  const has = (run, name) => name in runs[run].metrics.series;
  const every = runs.map((_, i) => i);
  if (!several) return [new Chart(title, names.map((name, i) => ({ run: 0, name, label: names.length > 1 ? brief(name) : name, color: i, dash: i })))];
  return names.map((name) => new Chart(names.length > 1 ? `${title}: ${brief(name)}` : title,
    every.filter((run) => has(run, name)).map((run) => ({ run, name, label: runs[run].name, color: run, dash: run }))));
}
const brief = (name) => name.replace(/^eval\//, "held-out ").replace(/^(reward\/part|[a-z]+)\//, "").replace(/_seconds$/, "");

function drawCurves() {
  const used = new Set();
  const grid = el("div", { class: "charts" });
  for (const [title, patterns] of CHARTS) {
    const names = patterns.flatMap(matching);
    names.forEach((name) => used.add(name));
    for (let i = 0; i < names.length; i += 8) charts.push(...cards(title, names.slice(i, i + 8)));
  }
  grid.append(...charts.map((chart) => chart.node));
  const rest = [...new Set(runs.flatMap((run) => Object.keys(run.metrics.series)))].filter((name) => !used.has(name)).sort();
  const more = el("div", { class: "charts" });
  const others = el("details", { ontoggle: () => {
    if (!others.open || more.childElementCount) return;
    const made = rest.flatMap((name) => cards(name, [name]));
    charts.push(...made);
    more.append(...made.map((chart) => chart.node));
  } }, el("summary", {}, `${rest.length} more metrics`), more);
  const smooth = el("select", { onchange: (event) => { view.smooth = Number(event.target.value); charts.forEach((c) => c.draw()); } },
    [[1, "none"], [5, "mean of 5 steps"], [15, "mean of 15 steps"]].map(([value, text]) => el("option", { value }, text)));
  const log = el("input", { type: "checkbox", onchange: (event) => { view.log = event.target.checked; charts.forEach((c) => c.draw()); } });
  if (!charts.length) return section("curves", "Curves", el("p", {}, "No metrics yet."));
  return section("curves", "Curves",
    el("p", { class: "small faint" }, "Triangles mark where a finding begins, diamonds where something was done. With a curve in focus the arrow keys move the step, and Enter lists its groups."),
    el("div", { class: "bar" }, el("label", {}, "Smoothing", smooth), el("label", {}, log, "Logarithmic where all values are positive")),
    grid, rest.length ? others : null);
}
