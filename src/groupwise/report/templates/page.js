// The sections in their order.
function each(make) {
  return runs.length === 1 ? [make(runs[0], 0)] : [el("div", { class: "runs" }, runs.map((run, i) =>
    el("div", {}, el("h3", {}, swatch(i), el("bdi", {}, run.name)), make(run, i))))];
}

function firstAndLast(run, name) {
  const line = points(run, name).filter((p) => Number.isFinite(p[1]));
  if (!line.length) return null;
  const few = line.length < 10 ? 1 : 5;
  const mean = (part) => part.reduce((sum, p) => sum + p[1], 0) / part.length;
  return line.length === 1 ? shown(line[0][1], 3) : `${shown(mean(line.slice(0, few)), 3)} \u2192 ${shown(mean(line.slice(-few)), 3)}`;
}

// A function of somebody's own, by its name alone.
const own = (name) => (String(name ?? "").includes(":") ? name.split(":").pop() : null);

function tiles(run) {
  const setting = (key) => run.settings[key]?.[0];
  const found = run.happenings.findings;
  const worst = ["critical", "warning", "info"].map((s) => [found.filter((f) => f.severity === s).length, s]).filter((p) => p[0]);
  const entries = [
    ["steps", run.of && run.of !== run.step ? `${run.step} of ${run.of}` : run.step],
    ["reward", firstAndLast(run, "reward/mean")],
    ["held-out pass@1", firstAndLast(run, "eval/pass@1")],
    ["held-out accuracy", firstAndLast(run, "eval/dpo_accuracy")],
    ["KL per token", firstAndLast(run, "kl/token_mean")],
    ["entropy", firstAndLast(run, "policy/entropy")],
    ["length, tokens", firstAndLast(run, "length/mean")],
    ["findings", worst.length ? worst.map(([count, s]) => `${count} ${s}`).join(", ") : run.nothing_learned ? "nothing learned" : "none"],
    ["model", setting("model.name")],
    ["objective", setting("method") === "dpo" ? "dpo" : setting("objective.preset")],
    ["advantage", own(setting("objective.advantage.name"))],
  ];
  const there = entries.filter((e) => e[1] !== null && e[1] !== undefined);
  const notes = [];
  if (there.some((e) => String(e[1]).includes("\u2192"))) notes.push("An arrow leads from the mean of the first 5 measurements to that of the last 5; of fewer than 10, from the first to the last.");
  if (run.of && run.step < run.of) notes.push(`${run.step} of ${run.of} steps were finished when this page was made. ${run.goes_on}`);
  return el("div", {}, el("ul", { class: "tiles" }, there.map(([name, value]) =>
    el("li", {}, el("b", {}, el("bdi", {}, value)), el("span", {}, name)))),
  notes.map((note) => el("p", { class: "small faint" }, note)));
}

function drawHead() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const button = el("button", { type: "button", id: "theme", onclick: () => theme(root.dataset.theme !== "dark") });
  const theme = (on) => {
    root.dataset.theme = on ? "dark" : "light";
    root.style.colorScheme = on ? "dark" : "light";
    button.textContent = on ? "Light colours" : "Dark colours";
  };
  theme(dark.matches);
  dark.addEventListener("change", () => theme(dark.matches));
  let before = null;
  window.addEventListener("beforeprint", () => { before = root.dataset.theme; theme(false); });
  window.addEventListener("afterprint", () => { if (before) theme(before === "dark"); });
  document.getElementById("head").append(
    el("div", {}, el("h1", {}, runs.map((run, i) => [i ? " and " : "", el("bdi", {}, run.name)])),
      el("p", { class: "small faint" }, `groupwise ${runs[0].manifest.groupwise ?? "?"}, seed ${runs.map((run) => run.manifest.seed ?? "?").join(" and ")}`)),
    button);
}

function drawFindings() {
  const list = (title, items, tag) => (items.length ? el("div", {}, el("b", {}, title), el(tag, {}, items.map((text) => el("li", {}, text)))) : null);
  const one = (f) => {
    const kind = ["info", "warning", "critical"].includes(f.severity) ? f.severity : "warning";
    const when = `steps ${f.begins} to ${f.ends === null ? "the end" : f.ends}`;
    const worse = f.worsens.length ? `, worse at ${f.worsens.join(", ")}` : "";
    return el("article", { class: `finding ${kind}` },
      el("p", {}, el("span", { class: `badge ${kind}` }, f.severity), " ", el("b", {}, f.check.replaceAll("_", " ")), ` (${f.kind.replaceAll("_", " ")}), ${when}${worse}`),
      el("p", {}, f.summary),
      el("details", {}, el("summary", {}, "Evidence, causes, what to try"), el("div", { class: "cols" },
        list("Evidence", [...Object.entries(f.evidence).map(([name, v]) => `${name} ${shown(v)}`), `judged by steps ${f.first_step} to ${f.last_step}`], "ul"),
        list("Rollouts to look at", f.examples, "ul"), list("Likely causes", f.causes, "ol"), list("To try", f.remedies, "ol"))));
  };
  const event = (e) => el("article", { class: "finding action" },
    el("p", {}, el("span", { class: "badge action" }, e.kind.replaceAll("_", " ")), ` at step ${e.step}`), el("p", {}, e.sentence));
  return section("findings", "Findings", each((run) => {
    const { findings, events, more } = run.happenings;
    const both = [...findings.map((f) => [f.begins, one(f)]), ...events.map((e) => [e.step, event(e)])].sort((a, b) => a[0] - b[0]);
    const nothing = run.nothing_learned ? el("article", { class: "finding warning" },
      el("p", {}, el("span", { class: "badge warning" }, "learned"), ` ${run.nothing_learned}.`)) : null;
    return el("div", {}, nothing, both.length || nothing ? both.map((b) => b[1]) : el("p", {}, run.too_few ? `Nothing was found, but few steps are finished (${run.step}): too few for most checks to say anything.` : "Nothing was found while the run was watched."),
      more[0] + more[1] ? el("p", { class: "faint" }, `${more[0]} more findings and ${more[1]} more events are in health.jsonl.`) : null);
  }));
}

function drawExtremes() {
  const cell = (name, x) => el("td", { class: "text", "data-name": name }, el("div", { class: "small faint" }, `reward ${shown(x.reward)}, ${shown(x.length)} tokens, group ${x.group}: `, el("bdi", {}, x.prompt)), runText(x.text));
  return section("extremes", "Best and worst rollouts over time", each((run) => (run.extremes.length
    ? el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Best and worst rollouts of ${run.name}` }, el("table", { class: "stack" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "step"), el("th", { scope: "col", class: "text" }, "best"), el("th", { scope: "col", class: "text" }, "worst"))),
      el("tbody", {}, run.extremes.map((row) => el("tr", {}, el("td", { "data-name": "step" }, row.step), cell("best", row.best), cell("worst", row.worst))))))
    : el("p", {}, "No rollouts with a reward are recorded."))));
}

function drawSamples() {
  return section("samples", "Samples", el("p", { class: "small faint" }, "Held-out evaluations and batches as they were written down for people."), each((run) => el("div", {}, run.samples.length
    ? run.samples.map(([name, text], i) => el("details", { open: i === run.samples.length - 1 }, el("summary", {}, name), el("pre", { dir: "auto" }, text)))
    : el("p", {}, "No samples were written."))));
}

function drawConfiguration() {
  const parts = [];
  if (several) {
    const keys = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))].sort();
    const differing = keys.filter((key) => new Set(runs.map((run) => run.settings[key]?.[0])).size > 1 && key !== "run.dir");
    parts.push(el("h3", {}, "What differs"), differing.length ? el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Settings that differ" }, el("table", {},
      el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "text" }, "setting"), runs.map((run) => el("th", { scope: "col", class: "text" }, el("bdi", {}, run.name))))),
      el("tbody", {}, differing.map((key) => el("tr", {}, el("td", { class: "text" }, key), runs.map((run) => el("td", { class: "text" }, run.settings[key]?.[0] ?? "absent")))))))
      : el("p", {}, "No setting differs."));
  }
  return section("configuration", "Configuration", parts, each((run) => el("div", {},
    run.formula ? el("pre", { tabindex: 0 }, run.formula) : null,
    el("details", {}, el("summary", {}, "config.yaml, every setting"), el("pre", { tabindex: 0 }, run.config || "There is no config.yaml.")),
    el("details", {}, el("summary", {}, "Versions and command"), el("pre", {}, JSON.stringify(run.manifest, null, 1))))));
}

function drawAbout() {
  return section("about", "About this page", each((run) => el("ul", {},
    [...run.notes, ...run.left_out].map((text) => el("li", {}, text)),
    el("li", {}, "The ratio of a token is exp(old - sampler): what the trainer says of it over what the sampler said, before any update. Log-probs after an update are not recorded."),
    el("li", {}, "The KL of a token is k3 = exp(d) - d - 1 with d = reference - old, whatever the estimator in the loss."))));
}

drawHead();
const overview = section("overview", "Overview", each(tiles));
const drawn = [overview, drawFindings(), drawCurves(), drawGroups(), drawExtremes(), drawSamples(), drawConfiguration(), drawAbout()];
document.getElementById("nav").append(el("ul", {}, drawn.map((node) => el("li", {}, el("a", { href: `#${node.id}` }, node.querySelector("h2").textContent)))));
