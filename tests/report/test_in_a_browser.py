"""Reports opened in headless Chromium and read as a person reads them."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.records import TrainingGroup
from groupwise.records.metrics_file import read_metrics
from groupwise.records.rollout_file import read_rollouts, write_rollouts
from groupwise.records.run_folder import RunFolder
from groupwise.workbench.report import write_report
from tests.report.browser import Tab
from tests.report.conftest import make_run, without_advantages

ATTACKS = (
    "<script>window.hit = 'script'</script>",
    "</script><script>window.hit = 'closed'</script>",
    "<!--<script>",
    "<img src=x onerror=\"window.hit = 'img'\">",
    '"><svg onload="window.hit = \'svg\'">',
    "javascript:window.hit='link'",
    "{{data}} ${window.hit = 'template'} `",
    "&lt;b&gt; &amp; \u2028 \u2029 \u202e gpj.exe \ufeff \x00 \x1b[31m",
    "<style>*{display:none}</style><link rel=stylesheet href=//example.invalid/x>",
    "<iframe src=//example.invalid></iframe><meta http-equiv=refresh content='0;url=//example.invalid'>",
    "__proto__",
    "constructor",
)


def quiet(tab: Tab) -> None:
    """No error, warning or dialog, and nothing asked of any network."""
    assert tab.complaints == []
    assert tab.requests == []


@pytest.fixture(autouse=True)
def _fresh(request: pytest.FixtureRequest) -> None:
    if "tab" in request.fixturenames:
        tab: Tab = request.getfixturevalue("tab")
        tab.complaints.clear()
        tab.requests.clear()
        tab.window(1280, 900)


@pytest.fixture(scope="module")
def page(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([finished], tmp_path_factory.mktemp("page") / "report.html").path


def test_a_report_is_read_down_to_a_token(page: Path, finished: Path, tab: Tab) -> None:
    tab.open(page)
    assert tab.run("document.title") == "run - groupwise report"
    assert tab.texts("h1")[0] == "run"

    # Every step of the reward is a corner of its curve, in order, and the highest point is the largest reward.
    lines = read_metrics(finished / "metrics.jsonl")
    path = tab.run("document.querySelector('.chart path.line').getAttribute('d')")
    corners = [tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]
    rewards = [line["reward/mean"] for line in lines if "reward/mean" in line]
    assert len(corners) == len(rewards) == 6
    assert [x for x, _ in corners] == sorted(x for x, _ in corners)
    assert np.corrcoef([-y for _, y in corners], rewards)[0, 1] == pytest.approx(1.0, abs=1e-3)
    drawn = tab.texts(".chart h3")
    for title in ("Reward", "Right answers", "KL per token", "Entropy", "Length", "Clip fraction"):
        assert title in drawn
    assert min(tab.each(".chart", "e.querySelectorAll('path.line[d^=M]').length")) >= 1

    # One group of the last step, opened by a click; one token of one rollout, chosen by a click.
    groups = read_rollouts(finished / "rollouts" / "step-000006.parquet")
    tab.run("document.querySelector('input[type=number]').focus()")
    tab.press("6")
    tab.click("tr[data-place='6/1'] button")
    assert tab.run("document.querySelector('.panel h3').textContent") == "Step 6, group 1"
    for i, t in ((0, 0), (2, 3)):
        entry = groups[1]
        rollout = entry.group.rollouts_G[i]
        tab.click(f"#tok-6-1-{i}-{t}")
        numbers = dict(tab.each(".readout dd", "[e.dataset.name, e.textContent]"))
        old, reference = entry.old_logprobs_GT[i][t], entry.reference_logprobs_GT[i][t]  # type: ignore[index]
        d = float(reference) - float(old)
        assert rollout.entropy_T is not None
        wanted = {
            "advantage": entry.advantages_GT[i][t],
            "ratio old / sampler": np.exp(float(old) - float(rollout.sampler_logprobs_T[t])),
            "KL (k3)": np.exp(d) - d - 1,
            "entropy, nats": rollout.entropy_T[t],
            "log-prob, sampler": rollout.sampler_logprobs_T[t],
            "log-prob, old": old,
            "log-prob, reference": reference,
        }
        assert set(numbers) == set(wanted)
        for name, value in wanted.items():
            assert float(numbers[name]) == pytest.approx(float(value), rel=1e-6, abs=1e-9), name
        said = tab.run("document.querySelector('.readout div').textContent")
        assert f"token {t + 1} of {len(rollout.token_ids_T)}, id {rollout.token_ids_T[t]} " in said
    quiet(tab)


def test_no_two_ticks_of_a_chart_say_the_same(finished: Path, tmp_path: Path, tab: Tab) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    lines = read_metrics(finished / "metrics.jsonl")
    for line in lines:  # an entropy that moves in its fourth digit alone
        if "policy/entropy" in line:
            line["policy/entropy"] = 5.5420 + 0.0005 * line["step"]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    tab.open(write_report([run], tmp_path / "report.html").path)
    said = tab.each(".chart", "[...e.querySelectorAll('text[text-anchor=end]')].map((t) => t.textContent)")
    assert all(len(set(texts)) == len(texts) for texts in said)
    entropy = said[tab.texts(".chart h3").index("Entropy")]
    assert entropy == ["5.543", "5.544", "5.545"]
    quiet(tab)


def test_the_texts_of_tokens_are_the_response(page: Path, finished: Path, tab: Tab) -> None:
    tab.open(page)
    tab.click("tr[data-place] button")
    place = tab.run("document.querySelector('tr.chosen').dataset.place")
    step, group = map(int, place.split("/"))
    entry = read_rollouts(RunFolder(finished).rollout_file(step))[group]
    for rollout in entry.group.rollouts_G:
        shown = tab.run(
            f"[...document.querySelectorAll('[id^=\"tok-{step}-{group}-{rollout.group_index}-\"]')]"
            ".map((t) => t.querySelector('.part') ? '' : t.textContent).join('')"
        )
        assert shown.replace("\u21b5\n", "\n").startswith(rollout.text)
    quiet(tab)


def test_colours_follow_the_numbers(page: Path, tab: Tab) -> None:
    tab.open(page)
    tab.click("tr[data-place] button")
    colours = (
        "[...document.querySelectorAll('.tok')].map((t) => getComputedStyle(t).backgroundColor)"
        ".filter((c) => c !== 'rgba(0, 0, 0, 0)')"
    )
    by_advantage = tab.run(colours)
    assert len(set(by_advantage)) > 1, "rollouts above and below the mean"
    for kind in ("kl", "entropy"):
        tab.run(f"document.querySelector('input[value={kind}]').click()")
        assert len(set(tab.run(colours))) > 4, kind
    tab.run("document.querySelector('input[value=advantage]').click()")
    assert tab.run(colours) == by_advantage
    quiet(tab)


def test_by_keyboard_alone(page: Path, tab: Tab) -> None:
    tab.open(page)
    tab.press("Tab")
    assert tab.run("document.activeElement.className") == "skip"
    tab.run("document.querySelector('.curve').focus()")
    tab.press("Home")
    for _ in range(2):
        tab.press("ArrowRight")
    told = tab.run("document.querySelector('.curve').getAttribute('aria-valuetext')")
    assert told.startswith("step 2: mean ")
    assert tab.run("getComputedStyle(document.querySelector('.cursor')).visibility") == "visible"
    tab.press("Enter")
    assert tab.run("document.activeElement.type") == "number", "Enter lists the groups of that step"
    assert set(tab.each("tr[data-place]", "e.dataset.place[0]")) == {"2"}
    for _ in range(40):
        tab.press("Tab")
        if tab.run("document.activeElement.textContent") == "open":
            break
    tab.press("Enter")
    assert tab.run("document.activeElement.tagName") == "H3"
    for _ in range(40):
        tab.press("Tab")
        if tab.run("document.activeElement.className") == "tokens":
            break
    tab.press("ArrowRight")
    assert ", token 2 of " in tab.run("document.querySelector('.readout div').textContent")
    tab.press("End")
    assert tab.run("document.querySelector('.tok.on').nextElementSibling") is None
    quiet(tab)


def test_groups_sort_by_every_column(page: Path, finished: Path, tab: Tab) -> None:
    tab.open(page)
    names = ["step", "group", "prompt", "spread", "mean", "min", "max", "length", "cut"]
    for place, name in enumerate(names):
        head = f"thead th:nth-child({place + 1}) button"
        orders = []
        for _ in range(2):
            tab.click(f"#groups {head}")
            orders.append(
                tab.run(
                    f"document.querySelector('#groups thead th:nth-child({place + 1})').getAttribute('aria-sort')"
                )
            )
            cells = tab.run(
                f"[...document.querySelectorAll('#groups tbody tr')].map((r) => r.children[{place}].textContent)"
            )
            values: list[Any] = [c if name == "prompt" else float(c.split(" ")[0]) for c in cells]
            assert values == sorted(values, reverse=orders[-1] == "descending"), name
        assert set(orders) == {"ascending", "descending"}
    quiet(tab)


def hostile(group: TrainingGroup, text: str) -> TrainingGroup:
    """The group with a text that no policy of good will writes."""
    inner = group.group
    rollouts = tuple(replace(r, text=text) for r in inner.rollouts_G)
    verdicts = tuple(replace(v, failure=text, parts={**v.parts, text: 1.0}) for v in inner.verdicts_G)
    return replace(group, group=replace(inner, rollouts_G=rollouts, verdicts_G=verdicts))


def test_hostile_text_is_only_text(tmp_path: Path, tab: Tab) -> None:
    made = make_run(
        tmp_path / "made",
        f"rewards.0.label={json.dumps(ATTACKS[3])}",
        "training.steps=2",
        prompts=lambda name, i: ATTACKS[i % len(ATTACKS)].replace("\x00", "") + f" {name} {i}",
    )
    run = tmp_path / "<img src=x onerror=window.hit='name'> {{data}} & 'q'"
    made.rename(run)
    for step in (1, 2):
        path = RunFolder(run).rollout_file(step)
        groups = read_rollouts(path)
        write_rollouts(
            path,
            [hostile(g, ATTACKS[(i + 3 * step) % len(ATTACKS)]) for i, g in enumerate(groups)],
            step=step,
        )
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "command": list(ATTACKS)}))
    (run / "samples" / "step-000002.md").write_text("\n".join(ATTACKS))
    finding = {
        "check": ATTACKS[0],
        "kind": ATTACKS[3],
        "severity": ATTACKS[4],
        "first_step": 1,
        "last_step": 2,
        "summary": ATTACKS[1],
        "evidence": {ATTACKS[3]: 1.0, "__proto__": 2.0},
        "causes": list(ATTACKS),
        "remedies": list(ATTACKS),
    }
    lines = [
        {"step": 1, "kind": "finding", "event": "begins", "finding": finding},
        {"step": 2, "kind": ATTACKS[0], "sentence": ATTACKS[1]},
    ]
    (run / "health.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    written = write_report([run], tmp_path / "report.html")
    tab.open(written.path)
    for place in tab.each("tr[data-place]", "e.dataset.place"):
        tab.click(f"tr[data-place='{place}'] button")
        tab.click(".tok")
    tab.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    tab.run("new Promise((done) => setTimeout(done, 300))")
    assert tab.run("window.hit") is None
    assert len(tab.texts("img, iframe, link, object, embed, base")) == 0
    assert len(tab.texts("script")) == 2
    assert len(tab.texts("style")) == 1
    assert len(tab.texts("a[href^=javascript]")) == 0
    assert len(tab.texts("[onerror], [onload], [onclick], [style*=url]")) == 0
    assert tab.texts("h1")[0] == run.name
    for attack in ATTACKS[:4]:
        assert tab.run(f"document.body.innerText.includes({json.dumps(attack)})"), "it can be read"
    quiet(tab)


def test_the_policy_refuses_what_gets_in_all_the_same(page: Path, tab: Tab) -> None:
    tab.open(page)
    tab.run("document.body.append(Object.assign(document.createElement('script'), {text: 'window.hit = 1'}))")
    tab.run("document.body.append(Object.assign(new Image(), {src: 'https://example.invalid/x.png'}))")
    tab.run("new Promise((done) => setTimeout(done, 200))")
    assert tab.run("window.hit") is None
    assert len(tab.complaints) == 2
    assert all("Content Security Policy" in complaint for complaint in tab.complaints)


CONTRASTS = """(() => {
  const parse = (c) => { const n = c.match(/[\\d.]+/g).map(Number); return [n[0], n[1], n[2], n[3] ?? 1]; };
  const over = (a, b) => [0, 1, 2].map((k) => a[k] * a[3] + b[k] * (1 - a[3])).concat(1);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (c) => { const l = c.slice(0, 3).map((v) => linear(v / 255));
    return 0.2126 * l[0] + 0.7152 * l[1] + 0.0722 * l[2]; };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.textContent.trim() || !parent.checkVisibility()) continue;
    if (parent.closest('script, noscript, .skip, :disabled')) continue;
    const chain = [];
    for (let e = parent; e; e = e.parentElement) chain.unshift(parse(getComputedStyle(e).backgroundColor));
    const back = chain.reduce((b, a) => over(a, b), [255, 255, 255, 1]);
    const style = getComputedStyle(parent);
    const ink = over(parse(parent instanceof SVGElement ? style.fill : style.color), back);
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push(`${node.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return found;
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_both_themes_at_both_widths(page: Path, tab: Tab, dark: bool, width: int) -> None:
    tab.window(width, 844, dark=dark)
    tab.open(page)
    tab.click("tr[data-place] button")
    tab.click(".tok:nth-child(2)")
    for kind in ("advantage", "entropy", "kl"):
        tab.run(f"document.querySelector('input[value={kind}]').click()")
        assert tab.run(CONTRASTS) == [], "text is to stand out from what is behind it, 4.5 to 1"
    assert tab.run("document.documentElement.scrollWidth") <= width, "the page itself never scrolls sideways"
    assert tab.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(21, 23, 26)" if dark else "rgb(255, 255, 255)"
    )
    nameless = tab.run(
        "[...document.querySelectorAll('button, input, select, [tabindex=\"0\"]')].filter((e) => !(e.textContent.trim()"
        " || e.getAttribute('aria-label') || e.labels?.length)).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert nameless == []
    quiet(tab)


def test_findings_stand_where_they_happened(finished: Path, tmp_path: Path, tab: Tab) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    finding = {
        "check": "kl_runaway",
        "kind": "high",
        "severity": "critical",
        "first_step": 2,
        "last_step": 4,
        "summary": "the KL is 1.2 nats per token",
        "evidence": {"kl/token_mean": 1.2},
        "causes": ["beta is small"],
        "remedies": ["raise beta"],
    }
    lines = [
        {"step": 4, "kind": "finding", "event": "begins", "finding": finding},
        {"step": 5, "kind": "action", "sentence": "beta is doubled to 0.1"},
        {"step": 6, "kind": "finding", "event": "ends", "finding": finding},
    ]
    (run / "health.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tab.open(write_report([run]).path)
    shown = tab.texts("#findings article")
    assert len(shown) == 2
    assert shown[0].startswith("critical kl runaway (high), steps 4 to 6the KL is 1.2 nats per token")
    assert shown[1] == "action at step 5beta is doubled to 0.1"
    marks = tab.run(
        "[...document.querySelector('.chart').querySelectorAll('.mark title')].map((t) => t.textContent)"
    )
    assert marks == [
        "step 4: critical kl_runaway: the KL is 1.2 nats per token",
        "step 5: action: beta is doubled to 0.1",
    ]
    # The mark stands where the curve has its step: of steps 0 to 6 the fourth is two thirds along.
    places = tab.run(
        "[...document.querySelector('.chart').querySelectorAll('.mark line')].map((l) => Number(l.getAttribute('x1')))"
    )
    assert places == pytest.approx([46 + 306 * 4 / 6, 46 + 306 * 5 / 6])
    quiet(tab)


def test_a_run_that_learned_nothing_is_not_called_sound(finished: Path, tmp_path: Path, tab: Tab) -> None:
    tab.open(write_report([without_advantages(finished, tmp_path)]).path)
    assert tab.texts("#findings article") == [
        "learned nothing from rewards: every advantage was 0, in every step."
    ]
    assert "Nothing was found" not in tab.texts("#findings")[0]
    assert "nothing learnedfindings" in tab.texts("#overview li")
    quiet(tab)


def test_the_boxes_say_what_they_are_and_how_a_run_goes_on(finished: Path, tmp_path: Path, tab: Tab) -> None:
    written = write_report([finished]).path
    tab.open(written)
    [arrows] = tab.texts("#overview p")
    assert arrows.startswith("An arrow leads from the mean of the first 5 measurements to that of the last 5")
    of, step = (
        re.search(rf'"{key}": ?(\d+)', written.read_text(encoding="utf-8")).group(1) for key in ("of", "step")
    )  # type: ignore[union-attr]
    assert of == step
    stopped = tmp_path / "stopped.html"
    text = re.sub(rf'"of": ?{of}', f'"of":{int(of) + 3}', written.read_text(encoding="utf-8"), count=1)
    stopped.write_text(text, encoding="utf-8")
    tab.open(stopped)
    assert tab.texts("#overview p")[1] == (
        f"{step} of {int(of) + 3} steps were finished when this page was made. If the run was stopped, groupwise train "
        "--resume with its folder goes on."
    )
    quiet(tab)


@pytest.mark.parametrize(
    ("setting", "python", "said"),
    [
        (
            "checkpoint.save=false",
            False,
            "It wrote no checkpoint (checkpoint.save is false), so it cannot be gone on with if it was stopped.",
        ),
        (
            None,
            True,
            "If the run was stopped, groupwise.train(resume=...) with its folder, and what it was given, goes on.",
        ),
    ],
)
def test_how_a_run_without_checkpoints_and_one_from_python_go_on(
    finished: Path, tmp_path: Path, tab: Tab, setting: str | None, python: bool, said: str
) -> None:
    run = tmp_path / "stopped"
    shutil.copytree(finished, run)
    config = run / "config.yaml"
    text = config.read_text()
    assert "steps: 6" in text
    text = text.replace("steps: 6", "steps: 9")
    config.write_text(text.replace("save: true", "save: false") if setting else text)
    if python:
        manifest = json.loads((run / "manifest.json").read_text())
        (run / "manifest.json").write_text(json.dumps(manifest | {"python_rewards": ["mine"]}))
    (run / "health.jsonl").unlink(missing_ok=True)
    tab.open(write_report([run]).path)
    assert tab.texts("#overview p")[1] == f"6 of 9 steps were finished when this page was made. {said}"
    # Six steps are too few for most checks, and a page without findings does not call them sound.
    assert tab.texts("#findings p") == [
        "Nothing was found, but few steps are finished (6): too few for most checks to say anything."
    ]
    quiet(tab)


def test_an_estimator_of_ones_own_has_its_name_in_a_box(tmp_path: Path, tab: Tab) -> None:
    (tmp_path / "centred.py").write_text("def centred(rewards_G):\n    return rewards_G - rewards_G.mean()\n")
    run = make_run(
        tmp_path / "made", "training.steps=1", f"objective.advantage={tmp_path / 'centred.py'}:centred"
    )
    tab.open(write_report([run]).path)
    assert "centredadvantage" in tab.texts("#overview li")
    quiet(tab)


def test_two_runs_side_by_side(finished: Path, tmp_path: Path, tab: Tab) -> None:
    other = tmp_path / "other"
    shutil.copytree(finished, other)
    config = other / "config.yaml"
    config.write_text(config.read_text().replace("learning_rate: 0.01", "learning_rate: 0.02"))
    metrics = (other / "metrics.jsonl").read_text().splitlines(keepends=True)
    (other / "metrics.jsonl").write_text("".join(metrics[:4]))
    written = write_report([finished, other], tmp_path / "both.html")
    tab.open(written.path)
    assert tab.texts("h1")[0] == "run and other"
    assert len(tab.texts(".chart:first-child path.line")) == 2
    corners = tab.each(".chart:first-child path.line", "e.getAttribute('d').match(/[ML]/g).length")
    assert corners == [6, 3]
    rows = tab.each("#configuration tbody tr", "[...e.children].map((c) => c.textContent)")
    assert rows == [["training.learning_rate", "0.01", "0.02"]]
    assert len(tab.texts("#groups table")) == 2
    tab.window(390, 844)
    assert tab.run("document.documentElement.scrollWidth") <= 390
    quiet(tab)


def test_it_prints(page: Path, tab: Tab) -> None:
    tab.window(1280, 900, dark=True)
    tab.open(page)
    pdf = tab.printed()
    assert pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 40
    assert tab.run("document.documentElement.dataset.theme") == "dark", "the screen is as it was"
    quiet(tab)


@pytest.mark.parametrize(
    "state", ["just begun", "torn", "without rollouts", "without a configuration", "damaged"]
)
def test_what_there_is_of_a_run(finished: Path, tmp_path: Path, tab: Tab, state: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    metrics = run / "metrics.jsonl"
    if state == "just begun":
        for name in ("rollouts", "samples", "model"):
            shutil.rmtree(run / name)
        metrics.unlink()
    elif state == "torn":
        metrics.write_text(metrics.read_text()[:-200])
        shutil.rmtree(run / "model")
    elif state == "without rollouts":
        shutil.rmtree(run / "rollouts")
    elif state == "without a configuration":
        (run / "config.yaml").unlink()
    else:
        file = run / "rollouts" / "step-000003.parquet"
        file.write_bytes(file.read_bytes()[:500])
    written = write_report([run])
    tab.open(written.path)
    told = tab.run("document.querySelector('#about').innerText")
    assert {
        "just begun": "no step is finished yet",
        "torn": "was cut short",
        "without rollouts": "",
        "without a configuration": "the configuration cannot be read",
        "damaged": "step-000003.parquet cannot be read",
    }[state] in told
    assert len(tab.texts("h2")) == 8
    quiet(tab)
