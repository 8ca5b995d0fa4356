// One rollout down to its tokens: what is known of each, and the colours.
const COLORS = {
  advantage: { label: "advantage", value: (n) => n.advantage, centre: 0 },
  ratio: { label: "ratio old / sampler", value: (n) => n.ratio, centre: 1 },
  kl: { label: "KL to the reference", value: (n) => n.kl },
  entropy: { label: "entropy", value: (n) => n.entropy },
  surprise: { label: "surprise, -log-prob", value: (n) => -n.sampler },
  value: { label: "critic's value", value: (n) => n.value, centre: 0 },
  earned: { label: "reward by token", value: (n) => n.earned, centre: 0 },
};

/** Every number of every token of a rollout; undefined where the records have none. */
function numbersOf(rollout) {
  if (rollout.numbers) return rollout.numbers;
  const floats = (name, kind = "f4") => (rollout[name] ? unpacked(rollout[name], kind) : null);
  const ids = unpacked(rollout.ids, "i4");
  const sampler = unpacked(rollout.sampler, "f4");
  const old = rollout.old === "=" ? sampler : floats("old");
  const [reference, entropy, value, target, kept] = ["reference", "entropy", "value", "target", "kept"].map((n) => floats(n));
  const [advantages, earned] = [floats("advantages", "f8"), floats("earned", "f8")];
  rollout.numbers = ids.map((id, t) => {
    const trained = !rollout.trainable || rollout.trainable[t] === "1";
    const at = (array) => (array ? array[t] : undefined);
    const d = reference ? reference[t] - (old ? old[t] : NaN) : undefined;
    return {
      id, trained, sampler: sampler[t], old: at(old), reference: at(reference), entropy: at(entropy), value: at(value), target: at(target), kept: at(kept),
      earned: at(earned),
      advantage: rollout.greedy ? undefined : advantages ? advantages[t] : trained ? real(rollout.advantage) : 0,
      ratio: old ? Math.exp(old[t] - sampler[t]) : undefined,
      kl: d === undefined ? undefined : Math.exp(d) - d - 1,
    };
  });
  return rollout.numbers;
}
const pieceOf = (rollout, t) => (rollout.pieces ? rollout.pieces[t] : `#${numbersOf(rollout)[t].id} `);

/** The range of a number in a group: around its centre where it has one, else from the smallest to the largest. */
function scaleOf(group, kind) {
  const { value, centre } = COLORS[kind];
  const all = group.rollouts.flatMap((r) => numbersOf(r).map(value)).filter((v) => v !== undefined && Number.isFinite(v));
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const far = centre === undefined ? most - least : Math.max(most - centre, centre - least);
  const low = centre === undefined ? least : centre - far;
  return { far, zero: centre ?? least, signed: centre !== undefined, known: all.length > 0, low, high: low + (centre === undefined ? far : 2 * far) };
}
const shade = (part, signed) => `rgba(var(--${!signed ? "heat" : part < 0 ? "minus" : "plus"}), ${(Math.abs(part) * 0.5).toFixed(3)})`;

function paint(node, numbers, scale, kind) {
  const v = COLORS[kind].value(numbers);
  node.style.backgroundColor = v === undefined || !Number.isFinite(v) || !(scale.far > 0) ? "" : shade((v - scale.zero) / scale.far, scale.signed);
}

function legendOf(scale, kind) {
  if (!scale.known) return el("span", { class: "faint" }, `No ${COLORS[kind].label} in the records of this group.`);
  const box = el("span", { class: "scale" }, shown(scale.low));
  for (let k = scale.signed ? -4 : 0; k <= 4; k++) {
    const i = el("i", { "aria-hidden": "true" });
    i.style.backgroundColor = shade(k / 4, scale.signed);
    box.append(i);
  }
  box.append(shown(scale.high));
  return box;
}

/** The tokens of a rollout: one stop of the Tab key, arrow keys move between tokens. */
function tokenList(group, rollout, look) {
  const numbers = numbersOf(rollout);
  const spans = numbers.map((n, t) => {
    const piece = pieceOf(rollout, t);
    const text = piece === "" ? el("span", { class: "part", title: "bytes of the character that the next tokens complete" }, "\u00b7") : piece.replaceAll("\n", "\u21b5\n");
    return el("span", { class: `tok${n.trained ? "" : " untrained"}`, role: "option", id: `tok-${group.step}-${group.group}-${rollout.i}-${t}`, "aria-selected": "false", "data-t": t }, text);
  });
  let at = -1;
  const go = (t) => {
    if (t < 0 || t >= spans.length) return;
    if (at >= 0) { spans[at].classList.remove("on"); spans[at].setAttribute("aria-selected", "false"); }
    look.chosen?.();
    at = t;
    look.chosen = () => { spans[at].classList.remove("on"); look.chosen = null; };
    spans[t].classList.add("on");
    spans[t].setAttribute("aria-selected", "true");
    box.setAttribute("aria-activedescendant", spans[t].id);
    look.read(rollout, t);
  };
  const box = el("div", {
    class: "tokens", tabindex: 0, role: "listbox", "aria-label": `Tokens of rollout ${rollout.i}`,
    onclick: (event) => { const hit = event.target.closest(".tok"); if (hit) { box.focus({ preventScroll: true }); go(Number(hit.dataset.t)); } },
    onfocus: () => { if (at < 0) go(0); },
    onkeydown: (event) => {
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + 10, ArrowUp: at - 10, Home: 0, End: spans.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      go(Math.min(spans.length - 1, Math.max(0, to)));
    },
  }, spans);
  const repaint = () => spans.forEach((span, t) => paint(span, numbers[t], look.scale, look.kind));
  repaint();
  look.painters.push(repaint);
  return box;
}
