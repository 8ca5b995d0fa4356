// The table of groups, and one group opened.
const COLUMNS = [
  ["step", "step"], ["group", "group"], ["prompt", "prompt", "text"], ["spread", "spread"], ["mean", "mean reward"],
  ["min", "least"], ["max", "most"], ["length", "mean length"], ["cut", "cut off"],
];
const PAGE = 25;

class Groups {
  constructor(run) {
    this.run = run;
    this.table = run.table;
    this.opened = new Map(run.opened.map((group) => [`${group.step}/${group.group}`, group]));
    this.order = { key: "spread", down: true };
    this.filter = { step: null, open: false, text: "" };
    this.page = 0;
    this.body = el("tbody");
    this.heads = new Map();
    this.pager = el("div", { class: "bar pager" });
    this.panel = el("div", { class: "group" });
    this.step = el("input", { type: "number", min: 1, max: lastStep, placeholder: "all", oninput: () => this.narrow({ step: this.step.value === "" ? null : Number(this.step.value) }) });
    const open = el("input", { type: "checkbox", onchange: () => this.narrow({ open: open.checked }) });
    const text = el("input", { type: "search", oninput: () => this.narrow({ text: text.value.toLowerCase() }) });
    const head = el("tr", {}, COLUMNS.map(([key, name, kind]) => {
      const th = el("th", { scope: "col", class: kind }, el("button", { type: "button", onclick: () => this.sort(key) }, name));
      this.heads.set(key, th);
      return th;
    }), el("th", { scope: "col" }, "tokens"));
    this.node = el("div", {},
      el("div", { class: "bar" }, el("label", {}, "Step", this.step), el("label", {}, "Prompt holds", text), el("label", {}, open, "Only groups with tokens")),
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Groups of ${run.name}` },
        el("table", { class: "listing" }, el("caption", { class: "skip" }, "Groups; the heads sort"), el("thead", {}, head), this.body)),
      this.pager, this.panel);
    this.fill();
  }

  narrow(change) {
    Object.assign(this.filter, change);
    this.page = 0;
    this.fill();
  }

  sort(key) {
    this.order = { key, down: this.order.key === key ? !this.order.down : !["step", "group", "prompt"].includes(key) };
    this.page = 0;
    this.fill();
  }

  rows() {
    const { step, open, text } = this.filter;
    const t = this.table;
    const prompt = (i) => t.prompts[t.prompt[i]];
    const rows = t.step.map((_, i) => i).filter((i) => (step === null || t.step[i] === step)
      && (!open || this.opened.has(`${t.step[i]}/${t.group[i]}`))
      && (!text || prompt(i).some((part) => part.toLowerCase().includes(text))));
    const key = this.order.key;
    const value = key === "prompt" ? (i) => prompt(i)[1] : (i) => real(t[key][i]) ?? NaN;
    const sign = this.order.down ? -1 : 1;
    return rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || a - b;
      return (x < y ? -sign : x > y ? sign : 0) || a - b;
    });
  }

  fill() {
    const t = this.table;
    const rows = this.rows();
    for (const [key, th] of this.heads) {
      if (key === this.order.key) th.setAttribute("aria-sort", this.order.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
    const pages = Math.max(1, Math.ceil(rows.length / PAGE));
    this.page = Math.min(this.page, pages - 1);
    this.body.replaceChildren(...rows.slice(this.page * PAGE, (this.page + 1) * PAGE).map((i) => {
      const place = `${t.step[i]}/${t.group[i]}`;
      const open = this.opened.has(place)
        ? el("button", { type: "button", class: "plain", "aria-label": `Open group ${t.group[i]} of step ${t.step[i]}`, onclick: () => this.open(place) }, "open")
        : el("span", { class: "faint" }, "left out");
      const [id, prompt] = t.prompts[t.prompt[i]];
      return el("tr", { "data-place": place, class: place === this.place ? "chosen" : null }, COLUMNS.map(([key, , kind]) => el("td", { class: kind },
        key === "prompt" ? el("bdi", { title: id }, prompt) : key === "cut" ? `${t.cut[i]} of ${t.size[i]}` : shown(t[key][i]))), el("td", {}, open));
    }));
    const turn = (by, text) => el("button", { type: "button", disabled: this.page + by < 0 || this.page + by >= pages, onclick: () => { this.page += by; this.fill(); } }, text);
    this.pager.replaceChildren(turn(-1, "Previous"), el("span", { role: "status" }, `${rows.length.toLocaleString("en")} groups, page ${this.page + 1} of ${pages}`), turn(1, "Next"));
  }

  open(place) {
    const group = this.opened.get(place);
    this.place = place;
    this.fill();
    this.panel.replaceChildren(groupPanel(this.run, group, () => {
      this.place = null;
      this.panel.replaceChildren();
      this.fill();
      this.step.focus();
    }));
    const head = this.panel.querySelector("h3");
    head.focus();
    head.scrollIntoView({ block: "start" });
  }
}

function groupPanel(run, group, close) {
  const look = { kind: "advantage", painters: [], chosen: null };
  const kinds = Object.keys(COLORS).filter((kind) => scaleOf(group, kind).known || ["advantage", "ratio", "kl", "entropy"].includes(kind));
  const legend = el("span", {});
  const show = () => {
    look.scale = scaleOf(group, look.kind);
    legend.replaceChildren(legendOf(look.scale, look.kind));
    look.painters.forEach((paintAgain) => paintAgain());
  };
  const readout = el("div", { class: "readout", role: "status", "aria-live": "polite" }, el("span", { class: "faint" }, "Choose a token to read its numbers: click it, or use the arrow keys inside a response."));
  look.read = (rollout, t) => readout.replaceChildren(...numbersShown(rollout, t));
  show();
  const name = `color-${group.step}-${group.group}`;
  const rank = (r) => (r.greedy ? -Infinity : real(r.reward) ?? -Infinity);
  const ordered = [...group.rollouts].sort((a, b) => rank(b) - rank(a) || a.i - b.i);
  const tokens = group.rollouts.reduce((sum, r) => sum + numbersOf(r).length, 0);
  return el("div", { class: "panel" },
    el("div", { class: "bar" }, el("h3", { tabindex: -1 }, `Step ${group.step}, group ${group.group}`), el("button", { type: "button", onclick: close }, "Close the group")),
    el("p", { class: "small faint" }, el("bdi", {}, group.id), group.zero_spread ? "; all rewards are equal" : ""),
    el("details", { open: group.prompt.length < 1500 }, el("summary", {}, "Prompt, as the model read it"), runText(group.prompt)),
    group.columns !== "{}" ? el("details", {}, el("summary", {}, "Other columns of its row"), runText(group.columns)) : null,
    el("div", { class: "bar" }, el("fieldset", {}, el("legend", {}, "Colour by"), kinds.map((kind) => el("label", {},
      el("input", { type: "radio", name, value: kind, checked: kind === look.kind, onchange: () => { look.kind = kind; show(); } }), COLORS[kind].label))), legend),
    ordered.map((rollout, place) => rolloutNode(run, group, rollout, look, tokens < 4000 || place === 0 || place === ordered.length - 1)),
    readout);
}

function rolloutNode(run, group, rollout, look, open) {
  const said = [
    `${rollout.greedy ? "greedy baseline" : `rollout ${rollout.i}`}: reward ${shown(rollout.reward)}`,
    rollout.greedy ? null : `advantage ${shown(rollout.advantage)}`,
    `${shown(rollout.length)} tokens`,
    rollout.stop === "length" ? "cut off by the limit" : "ended by itself",
    rollout.in_loss === false ? "not in the loss" : null,
  ].filter(Boolean);
  const parts = Object.entries(rollout.parts);
  const slot = el("div");
  const write = () => {
    if (slot.childElementCount) return;
    slot.append(tokenList(group, rollout, look));
    if (rollout.length > run.tokens) slot.append(el("p", { class: "small faint" }, `The first ${shown(run.tokens)} of ${shown(rollout.length)} tokens.`));
  };
  if (open) write();
  return el("details", { class: "rollout", open, ontoggle: write },
    el("summary", {}, said.join(", ")),
    parts.length > 1 || rollout.failure ? el("p", { class: "small faint" },
      parts.map(([label, v]) => `${label} ${shown(v)}${Object.hasOwn(rollout.terms, label) ? ` (adds ${shown(rollout.terms[label])})` : ""}`).join(", "),
      rollout.failure ? ` ${rollout.failure}` : "") : null,
    slot);
}

function numbersShown(rollout, t) {
  const n = numbersOf(rollout)[t];
  const rows = [
    ["advantage", n.advantage], ["ratio old / sampler", n.ratio], ["KL (k3)", n.kl], ["entropy, nats", n.entropy], ["log-prob, sampler", n.sampler],
    ["log-prob, old", n.old], ["log-prob, reference", n.reference], ["critic's value", n.value], ["value's target", n.target],
    ["reward by token", n.earned], ["kept mass", n.kept],
  ].filter((row) => row[1] !== undefined);
  return [
    el("div", {}, `Rollout ${rollout.i}, token ${t + 1} of ${rollout.length}, id ${n.id} `, rollout.pieces ? el("code", {}, el("bdi", {}, JSON.stringify(pieceOf(rollout, t)))) : null, n.trained ? "" : " (not trained)"),
    el("dl", {}, rows.map(([name, v]) => el("div", {}, el("dt", {}, name), el("dd", { "data-name": name }, exact(v))))),
  ];
}

const tables = [];
function openStep(step) {
  const groups = tables[0];
  if (!groups) return;
  groups.step.value = step;
  groups.narrow({ step });
  document.getElementById("groups").scrollIntoView();
  groups.step.focus({ preventScroll: true });
}

function drawGroups() {
  const node = section("groups", "Groups");
  for (const run of runs) {
    if (several) node.append(el("h3", {}, el("bdi", {}, run.name)));
    if (!run.table.step.length) {
      node.append(el("p", {}, "No rollouts are recorded."));
      continue;
    }
    const groups = new Groups(run);
    tables.push(groups);
    node.append(groups.node);
  }
  return node;
}
