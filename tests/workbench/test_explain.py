from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.config import load
from groupwise.errors import ConfigError
from groupwise.workbench.explain import explain, factors, loss, open_named, side_by_side


def formulas(*words: str, name: str = "grpo") -> dict[str, str]:
    return {factor.name: factor.formula for factor in factors(open_named(name, words))}


def test_grpo_in_full() -> None:
    # DeepSeekMath (arXiv 2402.03300), equation 3, with beta 0.04 of its section 4.2, as a loss.
    assert loss(open_named("grpo")) == "(1/N) sum_i (1/T_i) sum_t [ -S_t + 0.04 KL_t ]"
    found = formulas()
    assert found["advantage"] == "A_i = (r_i - mean(r)) / (std(r) + 0.0001),  std: sample"
    assert found["ratio"].startswith("rho_t = exp(policy_t - old_t)")
    assert found["surrogate"] == "S_t = min(rho A, clip(rho, 1 - 0.2, 1 + 0.2) A)"
    assert found["kl"] == "KL_t = exp(d) - d - 1,  d = reference_t - policy_t; 0.04 KL_t in the loss"
    assert found["entropy"] == "none"


def test_dr_grpo_in_full() -> None:
    # Dr. GRPO (arXiv 2503.20783): no std, no 1/T_i, no KL. L is the budget of new tokens, 256 by default.
    assert loss(open_named("dr_grpo")) == "(1 / (N * 256)) sum_i sum_t [ -S_t ]"
    assert formulas(name="dr_grpo")["advantage"] == "A_i = r_i - mean(r)"
    assert formulas(name="dr_grpo")["kl"].startswith("none")


@pytest.mark.parametrize(
    ("word", "factor", "says"),
    [
        ("objective.advantage.std=population", "advantage", "std: population"),
        ("objective.advantage.eps=0.5", "advantage", "(std(r) + 0.5)"),
        ("objective.surrogate.low=0.1", "surrogate", "1 - 0.1, 1 + 0.2"),
        ("objective.surrogate.high=0.28", "surrogate", "1 - 0.2, 1 + 0.28"),
        ("objective.surrogate.dual=3", "surrogate", "for A < 0 at least 3 A"),
        ("objective.kl.beta=0.25", "kl", "0.25 KL_t in the loss"),
        ("objective.kl.estimator=k1", "kl", "KL_t = -d"),
        ("objective.kl.place=reward", "kl", "0.04 sum_t KL_t taken off r_i before the advantage"),
        ("objective.kl.cap_token=2", "kl", "at most 2 per token"),
        ("objective.kl.cap_rollout=10", "kl", "at most 10 per rollout"),
        (
            "objective.kl.controller={name: interval, low: 2, unit: token}",
            "kl",
            "beta KL_t in the loss; beta x 1.5 after a step whose KL per token is above 10 nats, / 1.5 below 2",
        ),
        ("objective.ratio=sequence_geometric", "ratio", "exp((1/T_i) sum_t (policy_t - old_t))"),
        ("objective.surrogate=cispo", "surrogate", "sg(min(rho, 5)) A policy_t"),
        ("objective.entropy_bonus=0.5", "entropy", "times 0.5"),
        ("objective.zero_spread=drop", "equal rewards", "left out of the update"),
        ("objective.truncated=mask", "truncated", "left out of the loss"),
        ("objective.truncated=penalise", "truncated", "r_i less 1 (T_i - 205) / 51, from 205 tokens on"),
        ("objective.credit=outcome", "dense rewards", "summed over the response first"),
        ("objective.old_source=trainer", "old log-probs", "c_t = min(exp(old_t - sampler_t), 2)"),
        ("rollout.top_p=0.9", "old log-probs", "trainer's"),
        ("training.mini_batches=4", "update", "4 updates per batch (1 passes x 4 mini-batches)"),
        ("training.max_grad_norm=null", "update", "gradient norm not limited"),
    ],
)
def test_every_setting_shows(word: str, factor: str, says: str) -> None:
    changed = formulas(word)[factor]
    assert says in changed
    assert changed != formulas()[factor]


def test_terms_of_the_loss() -> None:
    assert loss(open_named("grpo", ["objective.entropy_bonus=0.5"])).endswith(
        "[ -S_t + 0.04 KL_t - 0.5 H_t ]"
    )
    assert loss(open_named("grpo", ["objective.entropy_bonus=-0.5"])).endswith(
        "[ -S_t + 0.04 KL_t + 0.5 H_t ]"
    )
    assert loss(open_named("grpo", ["objective.kl.place=reward"])).endswith("[ -S_t ]")
    moving = ["objective.kl.controller=proportional"]
    assert loss(open_named("grpo", moving)).endswith("[ -S_t + beta KL_t ]")
    assert loss(open_named("grpo", ["objective.old_source=trainer"])).endswith("[ -c_t S_t + 0.04 KL_t ]")
    assert loss(open_named("grpo", ["objective.aggregation={name: constant, length: 7}"])).startswith(
        "(1 / (N * 7))"
    )


def test_a_temperature_that_changes_is_said() -> None:
    words = ["rollout.temperature_schedule={final: 0.5, steps: 20}"]
    text = " ".join(explain("grpo", open_named("grpo", words)).split())
    assert "softmax(logits / T), T going from 1 to 0.5 over 20 steps." in text


def test_rewards_are_named_as_in_the_records(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "rewards: [numeric, {name: numeric, weight: 5}, {name: length, label: short, weight: -0.5}]\n"
    )
    found = {factor.name: factor.formula for factor in factors(open_named(str(tmp_path / "mine.yaml")))}
    assert found["reward"] == "r_i = 1 numeric + 5 numeric_2 + -0.5 short"


def test_where_each_setting_came_from(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("objective: {preset: dr_grpo, surrogate: {low: 0.1}}\nrewards: [numeric]\n")
    text = explain("mine.yaml", open_named(str(file), ["objective.kl.beta=0.5"]))
    assert "r_i = 1 numeric" in text
    assert "- mine.yaml: objective.surrogate.low=0.1" in text
    assert "- command line: objective.kl.beta=0.5" in text
    assert "- preset dr_grpo: objective.advantage.name=group_mean" in text
    assert "- rollout.max_new_tokens: objective.aggregation.length=256" in text
    assert "arXiv 2503.20783" in text
    assert max(len(line) for line in text.splitlines()) <= 105


def test_a_function_of_yours_is_shown_with_its_docstring_or_its_formula(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        'def best(rewards_G, *, scale: float = 2.0):\n    """Only the best counts."""\n    return rewards_G\n'
    )
    (tmp_path / "named.py").write_text(
        'FORMULA = "A_i = r_i^{power:g}"\n\n\ndef power(rewards_G, *, power: float = 2.0):\n    return rewards_G\n'
    )
    loaded = load({"objective": {"advantage": {"name": "own.py:best", "scale": 3}}}, base=tmp_path)
    assert {f.name: f.formula for f in factors(loaded)}[
        "advantage"
    ] == "best(scale=3.0): Only the best counts."
    loaded = load({"objective": {"advantage": "named.py:power"}}, base=tmp_path)
    found = {f.name: f.formula for f in factors(loaded)}
    assert found["advantage"] == "A_i = r_i^2"
    assert found["equal rewards"].startswith("advantage by its formula"), "it may give what it likes there"
    (tmp_path / "sets.py").write_text(
        'FORMULA = "A_i = #{j: r_j < r_i} - {bias:g}"\n\n\n'
        "def sets(rewards_G, *, bias: float = 2.0):\n    return rewards_G\n"
    )
    loaded = load({"objective": {"advantage": "sets.py:sets"}}, base=tmp_path)
    with pytest.raises(
        ConfigError, match=r"FORMULA of sets has braces .*\(bias\): 'j'; double other braces, as in \{\{j\}\}"
    ):
        factors(loaded)


def test_side_by_side_marks_what_differs() -> None:
    names = ["grpo", "dr_grpo"]
    lines = side_by_side([(name, open_named(name)) for name in names]).splitlines()
    titles = {line[2:]: line[0] for line in lines if line[:2] in ("* ", "  ") and line[2:3] not in (" ", "")}
    assert {title for title, mark in titles.items() if mark == "*"} >= {
        "loss",
        "advantage",
        "aggregation",
        "kl",
    }
    assert {title for title, mark in titles.items() if mark == " "} >= {"ratio", "surrogate", "truncated"}
    at = lines.index("* advantage")
    assert lines[at + 1] == "    grpo     A_i = (r_i - mean(r)) / (std(r) + 0.0001),  std: sample"
    assert lines[at + 2] == "    dr_grpo  A_i = r_i - mean(r)"
    same = side_by_side([("a", open_named("grpo")), ("b", open_named("grpo"))])
    assert not [line for line in same.splitlines() if line.startswith("* ")][1:]


def test_names_files_and_run_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("objective: dr_grpo\n")
    (tmp_path / "run" / "manifest.json").write_text("{}")
    assert open_named("run").config.objective.preset == "dr_grpo"
    assert open_named("run/config.yaml").config.objective.preset == "dr_grpo"
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.raises(ConfigError, match="folder"):  # a configuration in it does not make it a run
        open_named("run")
    with pytest.raises(ConfigError, match=r"'grpoo' is neither .* did you mean grpo\?"):
        open_named("grpoo")
    with pytest.raises(ConfigError, match=r"no configuration file .*nowhere\.yaml"):
        open_named("nowhere.yaml")


def test_dpo_is_explained_with_its_numbers() -> None:
    text = explain("dpo", open_named("dpo", ["dpo.beta=0.3"]))
    assert "minimise  (1/P) sum [ -log sigmoid(m) ]" in text
    assert "m = 0.3 [(policy - reference) chosen - (policy - reference) rejected]" in " ".join(text.split())
    assert "- command line: dpo.beta=0.3" in text
    assert "arXiv 2305.18290" in text
    smoothed = explain("dpo", open_named("dpo", ["dpo.label_smoothing=0.1"]))
    assert "-(1 - 0.1) log sigmoid(m) - 0.1 log sigmoid(-m)" in smoothed
    with pytest.raises(ConfigError, match="dpo trains on pairs and shares no factor"):
        side_by_side([("grpo", open_named("grpo")), ("dpo", open_named("dpo"))])


def test_the_critic_is_a_factor_of_advantages_that_ask_for_values() -> None:
    found = {f.name: f.formula for f in factors(open_named("ppo", ["critic.warmup_steps=3"]))}
    assert found["critic"].startswith(
        "V_t on a backbone of its own; minimise  (1 / sum_i T_i) sum_i sum_t 1/2 max((V - R)^2"
    )
    assert "clip(V, V_old - 0.2, V_old + 0.2)" in found["critic"]
    assert found["critic"].endswith("the policy waits for the first 3 steps")
    plain = {
        f.name: f.formula for f in factors(open_named("ppo", ["critic.clip=null", "critic.backbone=policy"]))
    }
    assert "sum_t 1/2 (V - R)^2, R what" in plain["critic"]
    assert "no gradient sent back" in plain["critic"]
    assert "critic" not in {f.name for f in factors(open_named("remax"))}


def test_recipes_are_said_where_they_are_and_nowhere_else() -> None:
    plain = formulas()
    assert not {"confidence", "filter", "teaching"} & set(plain)
    found = formulas(
        "rollout.confidence={threshold: 0.7, redraws: 2}",
        "rollout.max_redraws=3",
        "objective.filter={max_tokens: 30, pattern: x, counted: false}",
        "objective.teaching={text: ' No.', place: start, answer: weight, weight: 0.5, below: 0.2}",
        "objective.kl.reference_dropout=0.1",
    )
    assert "above, log p + log sum_k M^k, k = 0..2, below" in found["confidence"]
    assert found["old log-probs"].startswith(
        "old_t: the trainer's log-probs; c_t = min(exp(old_t - sampler_t), 2)"
    )
    assert found["equal rewards"].startswith(
        "the group is replaced by one of the next prompt, 3 times at most; then "
    )
    assert found["filter"] == (
        "in the loss where T_i <= 30 and the response holds 'x'; what is left out does not count in its group either"
    )
    assert found["teaching"] == (
        "where r_i < 0.2, ' No.' is put before the answer, with A_t = 0.5; the answer has A_t = 0.5"
    )
    assert "0.1 of the reference's last hidden features dropped" in found["kl"]
