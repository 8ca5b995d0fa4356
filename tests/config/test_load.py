"""From file, mapping and words to a checked configuration: cases l01, l03, l04, l05, l07."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.config import RunConfig, load, yaml
from groupwise.config.keys import known_keys, leaves
from groupwise.errors import ConfigError

# One other value for every setting, and what it cannot be had without.
OTHER: dict[str, tuple[object, dict[str, Any]]] = {
    "method": ("dpo", {}),
    "model.name": ("other/model", {}),
    "model.revision": ("main", {}),
    "model.tokenizer": ("other", {}),
    "model.chat_template": ("t.jinja", {}),
    "model.pad_token": ("<pad>", {}),
    "model.dtype": ("bfloat16", {"lora": {"rank": 4}}),
    "model.precision": ("bfloat16", {}),
    "model.attention": ("sdpa", {}),
    "model.device": ("cpu", {}),
    "model.trust_remote_code": (True, {}),
    "lora.rank": (8, {}),
    "lora.alpha": (3.5, {}),
    "lora.dropout": (0.1, {}),
    "lora.target_modules": (["q_proj", "v_proj"], {}),
    "lora.adapter": ("folder", {}),
    "reference.dtype": ("float16", {}),
    "reference.device": ("cpu", {}),
    "memory.quantise": ("nf4", {"lora": {"rank": 4}}),
    "memory.quantise_scales": (False, {"lora": {"rank": 4}, "memory": {"quantise": "nf4"}}),
    "memory.reference": ("cpu", {}),
    "prompts.duplicates": ("drop", {}),
    "prompts.overlap": ("error", {}),
    "prompts.columns.history": ("before", {}),
    "prompts.columns.max_new_tokens": ("limit", {}),
    "prompts.curriculum.difficulty": ([0.3, 0.9], {}),
    "prompts.curriculum.steps": (7, {}),
    "prompts.curriculum.mastered": (None, {}),
    "prompts.curriculum.again_after": (3, {}),
    "prompts.curriculum.keep": (0.9, {}),
    "prompts.curriculum.first": (0.2, {}),
    "prompts.curriculum.column": ("passed", {}),
    **{
        f"objective.{key}": (value, {"objective": others})
        for key, value, others in (
            ("filter.min_tokens", 3, {}),
            ("filter.max_tokens", 30, {}),
            ("filter.pattern", "[0-9]", {}),
            ("filter.reward", "right", {"filter": {"max_reward": 1.0}}),
            ("filter.min_reward", 0.5, {}),
            ("filter.max_reward", 0.5, {}),
            ("filter.counted", False, {"filter": {"max_reward": 1.0}}),
            ("teaching.text", " No.", {}),
            ("teaching.place", "start", {"teaching": {"text": "x"}}),
            ("teaching.below", 0.5, {"teaching": {"text": "x"}}),
            ("teaching.train_note", False, {"teaching": {"text": "x", "place": "start"}}),
            ("teaching.answer", "mask", {"teaching": {"text": "x"}}),
            ("teaching.weight", 0.2, {"teaching": {"text": "x"}}),
            ("kl.reference_dropout", 0.1, {}),
        )
    },
    "rollout.engine": ("vllm", {}),
    "rollout.overlap": (1, {"rollout": {"engine": "vllm"}}),
    **{
        f"rollout.vllm.{key}": (value, {"rollout": {"engine": "vllm"}})
        for key, value in (
            ("base_url", "http://localhost:8000"),
            ("python", "/opt/vllm/bin/python"),
            ("arguments", ["--tensor-parallel-size=2"]),
            ("port", 8123),
            ("start_seconds", 60.0),
            ("restarts", 1),
            ("timeout_seconds", 60.0),
            ("retry_seconds", 60.0),
            ("concurrency", 8),
            ("weights_dir", "/shared/weights"),
            ("transfer", "gloo"),
        )
    },
    "rollout.confidence.threshold": (0.8, {}),
    "rollout.confidence.redraws": (3, {}),
    "rollout.max_redraws": (4, {}),
    **{
        f"prompts.{key}.{name}": (value, {"source": source})
        for key in ("train", "held_out")
        for name, value, source in (
            ("source", "rows.parquet", "rows.parquet"),
            ("name", "other", "rows.csv"),
            ("subset", "main", "owner/data"),
            ("split", "test", "owner/data"),
            ("settings", {"n": 3}, "rows.py:made"),
            ("size", 50, "reasoning-gym:leg_counting"),
            ("seed", 4, "reasoning-gym:leg_counting"),
            ("columns", {"prompt": "question"}, "rows.csv"),
            ("rows", 20, "rows.csv"),
            ("add", {"task": None, "kind": "sum"}, "rows.csv"),
            ("weight", 2.0, "rows.csv"),
        )
        if (key, name) != ("held_out", "weight")
    },
    "prompts.columns.prompt": ("question", {}),
    "prompts.columns.system": ("instruction", {}),
    "prompts.chat": (True, {}),
    "prompts.system_prompt": ("Answer: briefly #1.\n", {}),
    "prompts.chat_template_kwargs": ({"thinking": False, "deep": {"x": None, "y": [1]}}, {}),
    "prompts.max_prompt_tokens": (100, {}),
    "prompts.too_long": ("truncate", {}),
    "prompts.shuffle": (False, {}),
    "prompts.drop_last": (True, {}),
    "rollout.prompts_per_step": (3, {}),
    "rollout.group_size": (5, {}),
    "rollout.max_new_tokens": (7, {}),
    "rollout.temperature": (0.7, {}),
    "rollout.temperature_schedule.final": (0.6, {}),
    "rollout.temperature_schedule.steps": (50, {}),
    "rollout.top_p": (0.9, {}),
    "rollout.top_k": (50, {}),
    "rollout.min_p": (0.05, {}),
    "rollout.stop_tokens": (["</answer>", "1e-6"], {}),
    "rollout.pack_weights": (False, {}),
    "rollout.cache_megabytes": (100, {}),
    "rewards.name": ("numeric", {}),
    "rewards.weight": (0.25, {}),
    "rewards.label": ("right", {}),
    "rewards.settings": ({"tolerance": 0.1}, {}),
    "rewards.columns": ({"answer": "gold"}, {}),
    "rewards.on_failure": ("drop", {}),
    "rewards.failure_value": (-1.0, {"on_failure": "value"}),
    "rewards.timeout_seconds": (2.5, {}),
    "rewards.workers": (3, {}),
    "rewards.gate.reward": ("right", {}),
    "rewards.gate.at_least": (0.5, {"gate": {"reward": "right"}}),
    "rewards.gate.otherwise": (-0.5, {"gate": {"reward": "right"}}),
    "rewards.normalise": ("group", {}),
    "rewards.smoothing": (0.9, {"normalise": "batch"}),
    "rewards.schedule": ([[0, 0.0], [100, 1.0]], {}),
    "objective.preset": ("dr_grpo", {}),
    "objective.advantage": ({"name": "group_zscore", "std": "population", "eps": 1e-6}, {}),
    "objective.ratio": ("sequence_geometric", {}),
    "objective.surrogate": ({"name": "clip", "low": 0.1, "high": 0.3, "dual": 3.0}, {}),
    "objective.aggregation": ({"name": "constant", "length": 12}, {}),
    "objective.kl.estimator": ("k1", {}),
    "objective.kl.place": ("reward", {}),
    "objective.kl.beta": (0.01, {}),
    "objective.kl.cap_token": (2.0, {}),
    "objective.kl.cap_rollout": (10.0, {}),
    "objective.kl.controller": (
        {"name": "warmup_decay", "target": 0.01, "warmup_steps": 5, "hold_steps": 7, "decay_steps": 100},
        {},
    ),
    "objective.entropy_bonus": (0.001, {}),
    "objective.zero_spread": ("drop", {}),
    "objective.credit": ("outcome", {}),
    "objective.truncated": ("mask", {}),
    "objective.overlong_buffer": (20, {}),
    "objective.overlong_penalty": (0.5, {}),
    "objective.old_source": ("trainer", {}),
    "objective.correction_cap": (3.0, {}),
    "critic.backbone": ("policy", {"objective": {"preset": "ppo"}}),
    "critic.learning_rate": (2e-4, {"objective": {"preset": "ppo"}}),
    "critic.clip": (None, {"objective": {"preset": "ppo"}}),
    "critic.warmup_steps": (2, {"objective": {"preset": "ppo"}}),
    "dpo.beta": (0.3, {"method": "dpo"}),
    "dpo.label_smoothing": (0.1, {"method": "dpo"}),
    "dpo.pairs_per_step": (4, {"method": "dpo"}),
    "dpo.max_response_tokens": (99, {"method": "dpo"}),
    "dpo.chosen": ("better", {"method": "dpo"}),
    "dpo.rejected": ("worse", {"method": "dpo"}),
    "training.steps": (10, {}),
    "training.epochs": (1.5, {}),
    "training.learning_rate": (2e-5, {}),
    "training.schedule": ("cosine", {}),
    "training.warmup_steps": (2, {}),
    "training.adam_betas": ([0.8, 0.95], {}),
    "training.adam_eps": (1e-6, {}),
    "training.weight_decay": (0.01, {}),
    "training.max_grad_norm": (None, {}),
    "training.updates_per_batch": (2, {}),
    "training.mini_batches": (2, {}),
    "training.micro_batch_tokens": (512, {}),
    "training.micro_batch_rollouts": (4, {}),
    "training.gradient_checkpointing": (True, {}),
    "training.compile": (True, {}),
    "training.reuse_sampling": (False, {}),
    "training.max_bad_steps": (1, {}),
    "evaluate.every_steps": (5, {"prompts": {"held_out": "h.jsonl"}}),
    "evaluate.at_start": (False, {}),
    "evaluate.at_end": (False, {}),
    "evaluate.temperature": (0.5, {}),
    "evaluate.samples": (4, {"evaluate": {"temperature": 1.0}}),
    "evaluate.k": ([1, 2], {"evaluate": {"temperature": 1.0, "samples": 2}}),
    "evaluate.greedy": (True, {"evaluate": {"temperature": 1.0}}),
    "evaluate.max_new_tokens": (9, {}),
    "evaluate.pass_reward": (0.5, {}),
    "evaluate.prompts": (20, {}),
    "checkpoint.save": (False, {}),
    "checkpoint.every_steps": (20, {}),
    "checkpoint.every_minutes": (2.5, {}),
    "checkpoint.keep_last": (1, {}),
    "checkpoint.best_metric": ("eval/reward_mean", {}),
    "checkpoint.grace_seconds": (5.0, {}),
    "health.every_steps": (5, {}),
    "health.probe_steps": (20, {}),
    "health.off": (["repetition", "truncation"], {}),
    "health.add": (["checks.py:mine"], {}),
    "health.thresholds": ({"kl_runaway": {"token_limit": 0.5}}, {}),
    "health.stop": (["kl_runaway"], {}),
    "health.actions": (
        {
            "kl_runaway": {
                "do": "adjust",
                "learning_rate": 0.5,
                "beta": 2.0,
                "temperature": 1.1,
                "severity": "critical",
                "times": 2,
                "wait_steps": 5,
                "revert": True,
                "then": "stop",
            }
        },
        {},
    ),
    "run.dir": ("runs/one", {}),
    "run.base": ("/somewhere", {}),
    "run.seed": (7, {}),
    "run.overwrite": (True, {}),
    "run.sinks": ([], {}),
    "run.save_rollouts": (False, {}),
    "run.samples_every_steps": (20, {}),
    "run.save_model": (False, {}),
    "distributed.strategy": ("fsdp2", {}),
    "distributed.timeout_seconds": (20.0, {}),
}
OTHER |= {
    f"evaluate.{key}": given
    for key, given in OTHER.items()
    if key.startswith("rewards.") and not key.endswith(("normalise", "smoothing", "schedule"))
}
ONLY_ONE = {"prompts.held_out.weight"}
"""Settings with a single choice so far."""


def tree_with(key: str, value: object, others: dict[str, Any]) -> dict[str, Any]:
    tree: Any = value
    if re.match(r"prompts\.(train|held_out)\.", key):
        _, section, name = key.split(".")
        return {"prompts": {section: [{**others, name: value}]}}
    _, listed, inside = key.rpartition("rewards.")
    for part in reversed(inside.split(".") if listed else key.split(".")):
        tree = {part: tree}
    if listed:
        entry = {"name": "exact", **others}
        for name, inner in tree.items():
            entry[name] = {**entry.get(name, {}), **inner} if name == "gate" else inner
        return {"rewards": [entry]} if key.startswith("rewards.") else {"evaluate": {"rewards": [entry]}}
    return laid_on(others, tree)


def laid_on(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    tree = {**under, **over}
    for key in under.keys() & over.keys():
        if isinstance(under[key], dict) and isinstance(over[key], dict):
            tree[key] = laid_on(under[key], over[key])
    return tree


def at(config: RunConfig, key: str) -> object:
    node: Any = config.model_dump(mode="json")
    for part in key.split("."):
        node = (node or [{}])[0].get(part) if isinstance(node, list) else (node or {}).get(part)
    return node


def test_there_is_another_value_for_every_setting() -> None:
    assert set(OTHER) | ONLY_ONE == set(known_keys())


@pytest.mark.parametrize("key", OTHER)
def test_every_setting_can_be_set_is_kept_and_knows_its_origin(key: str) -> None:
    value, others = OTHER[key]
    loaded = load(tree_with(key, value, others))
    base = (
        load(tree_with(key, at(load({}).config, key), others))
        if not key.startswith(
            (
                *(
                    "rewards",
                    "evaluate.rewards",
                    "lora",
                    "rollout.temperature_schedule",
                    "rollout.confidence",
                    "rollout.vllm",
                ),
                *("prompts.curriculum", "prompts.train.", "prompts.held_out."),
                *("objective.filter", "objective.teaching"),
            )
        )
        else load({})
    )
    assert at(loaded.config, key) == value
    assert loaded.config != base.config
    dotted = re.sub(r"^(evaluate.rewards|rewards|prompts.train|prompts.held_out)\.", r"\1.0.", key)
    origins = [
        place for name, place in loaded.origins.items() if name == dotted or name.startswith(f"{dotted}.")
    ]
    assert origins
    assert set(origins) == {"configuration"}


@pytest.mark.parametrize("key", OTHER)
def test_what_is_written_is_read_back_equal(key: str, tmp_path: Path) -> None:
    # Case l05: null, lists and mappings included.
    value, others = OTHER[key]
    config = load(tree_with(key, value, others)).config
    path = tmp_path / "config.yaml"
    path.write_text(yaml.dump(config.model_dump(mode="json")), encoding="utf-8")
    assert load(path).config == config
    assert load(config).config == config
    assert load(load(config)).config == config
    assert load(json.loads(config.model_dump_json())).config == config


@pytest.mark.parametrize("key", [key for key in OTHER if "rewards." not in key])
def test_every_setting_can_be_given_as_a_word_in_json(key: str) -> None:
    value, others = OTHER[key]
    dotted = re.sub(r"^(prompts.train|prompts.held_out)\.", r"\1.0.", key)
    under = others if dotted == key else {"prompts": {key.split(".")[1]: [others]}}
    by_word = load(under, [f"{dotted}={json.dumps(value)}"])
    assert by_word.config == load(tree_with(key, value, others)).config
    key = dotted
    origins = {place for name, place in by_word.origins.items() if name == key or name.startswith(f"{key}.")}
    assert origins == {"command line"}


def test_null_is_a_value_and_not_the_absence_of_one() -> None:
    tree = load({"training": {"max_grad_norm": None}}).config.model_dump(mode="json")
    assert tree["training"]["max_grad_norm"] is None
    assert load(tree).config.training.max_grad_norm is None
    assert load({"lora": {"rank": 4}}, ["lora=null"]).config.lora is None
    assert load({"lora": {}}).config.lora is not None


def test_later_wins_and_every_value_knows_where_it_came_from(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "objective:\n  preset: dr_grpo\n  surrogate: {high: 0.28}\ntraining: {steps: 9}\nrewards: [exact]\n"
    )
    loaded = load(path, ["training.learning_rate=1e-5", "training.steps=3"])
    assert loaded.base == tmp_path
    assert loaded.config.training.steps == 3
    assert loaded.config.objective.surrogate.model_dump() == {
        "name": "clip",
        "low": 0.2,
        "high": 0.28,
        "dual": None,
    }
    expected = {
        "training.steps": "command line",
        "training.learning_rate": "command line",
        "objective.surrogate.high": "run.yaml",
        "objective.surrogate.low": "preset dr_grpo",
        "objective.advantage.name": "preset dr_grpo",
        "objective.preset": "run.yaml",
        "rewards.0.name": "run.yaml",
        "rewards.0.weight": "default",
        "rollout.group_size": "default",
        "objective.aggregation.length": "rollout.max_new_tokens",
    }
    assert {key: loaded.origins[key] for key in expected} == expected
    assert set(loaded.origins) == {key for key, _ in leaves(loaded.config.model_dump(mode="json"))}


def test_a_length_that_was_given_is_not_said_to_be_filled_in() -> None:
    given = {"objective": {"preset": "dr_grpo", "aggregation": {"name": "constant", "length": 12}}}
    loaded = load(given, ["objective.entropy_bonus=0.1"])
    assert loaded.config.objective.aggregation.settings == {"length": 12}
    assert loaded.origins["objective.aggregation.length"] == "configuration"


def test_a_preset_named_by_a_word_has_its_effect_on_a_full_configuration() -> None:
    # Case l04: a resolved file states every value, and yet naming another preset must do something.
    full = load({"objective": "grpo", "training": {"steps": 5}}).config
    loaded = load(full, ["objective=dr_grpo"])
    assert loaded.config.objective.advantage.name == "group_mean"
    assert loaded.config.objective.kl.beta == 0.0
    assert loaded.config.training.steps == 5
    assert loaded.origins["objective.advantage.name"] == "preset dr_grpo"
    assert load(full, ["objective=dr_grpo", "objective.kl.beta=0.1"]).config.objective.kl.beta == 0.1


def test_another_choice_brings_none_of_the_old_ones_settings() -> None:
    assert load({"objective": {"advantage": "group_mean"}}).config.objective.advantage.settings == {}
    kept = load({"objective": {"advantage": {"std": "population"}}}).config.objective.advantage
    assert kept.model_dump() == {"name": "group_zscore", "std": "population", "eps": 1e-4}
    words = ["objective.advantage=group_zscore", "objective.advantage.std=population"]
    assert load({}, words).config.objective.advantage.settings["std"] == "population"


def test_one_entry_of_a_list_can_be_changed_by_its_number() -> None:
    tree = {"rewards": ["exact", {"name": "numeric", "weight": 2}]}
    loaded = load(tree, ["rewards.0.weight=0.5", "rewards[1].label=n"])
    assert [(r.name, r.weight, r.label) for r in loaded.config.rewards] == [
        ("exact", 0.5, None),
        ("numeric", 2.0, "n"),
    ]
    assert loaded.origins["rewards.0.weight"] == "command line"
    assert loaded.origins["rewards.1.weight"] == "configuration"
    assert [r.weight for r in load({}, ["rewards=[exact]", "rewards.0.weight=3"]).config.rewards] == [3.0]
    with pytest.raises(
        ConfigError, match=r"there is no rewards\.2, since rewards has 2 entries, counted from 0"
    ):
        load(tree, ["rewards.2.weight=1"])


def test_short_forms() -> None:
    assert load({"model": "some/model"}).config.model.name == "some/model"
    assert [r.name for r in load({"rewards": "exact"}).config.rewards] == ["exact"]
    assert [r.name for r in load({"rewards": ["exact", {"name": "numeric"}]}).config.rewards] == [
        "exact",
        "numeric",
    ]
    assert load({"objective": "dr_grpo"}).config.objective.preset == "dr_grpo"
    assert load({}, ["model=some/model"]).config.model.name == "some/model"


WRONG_TREES = [
    # Case l01: unknown keys at any depth, with the nearest that exists.
    (
        "training: {lerning_rate: 1}",
        "unknown key training.lerning_rate; did you mean training.learning_rate?",
    ),
    ("lerning_rate: 1", "unknown key lerning_rate; did you mean training.learning_rate?"),
    ("num_generation: 4", "unknown key num_generation; did you mean rollout.group_size?"),
    ("num_generations: 4", "rollout.group_size"),
    ("lora: {rnk: 8}", "unknown key lora.rnk; did you mean lora.rank?"),
    ("rewards: [{nam: exact}]", "unknown key rewards[0].nam; did you mean rewards[0].name?"),
    (
        "rewards: [{name: exact, ignore_case: true}]",
        "unknown key rewards[0].ignore_case; it is a setting of exact; write settings: {ignore_case: ...}",
    ),
    (
        "rewards: [{exact: {weight: 2}}]",
        "unknown key rewards[0].exact; a reward is written exact, or {name: exact, weight: 1}",
    ),
    ("rewards: {numeric: 1.0}", "unknown key rewards.numeric; a reward is written numeric, or {name:"),
    ("rewards: [{name: own.py:f, ignore_case: true}]", "unknown key rewards[0].ignore_case; "),
    (
        "evaluate: {rewards: [{exact: 1}]}",
        "unknown key evaluate.rewards[0].exact; a reward is written exact",
    ),
    ("steps: 4", "unknown key steps; did you mean training.steps?"),
    ("max_new_tokens: 4", "unknown key max_new_tokens; did you mean rollout.max_new_tokens?"),
    ("schedule: cosine", "unknown key schedule; did you mean training.schedule?"),
    ("timeout_seconds: 4", "unknown key timeout_seconds; did you mean rewards.timeout_seconds?"),
    (
        "prompts: {columns: {promt: x}}",
        "unknown key prompts.columns.promt; did you mean prompts.columns.prompt?",
    ),
    ("objective: {advantage: {stdd: sample}}", "group_zscore has no setting 'stdd'; did you mean 'std'?"),
    ("objective: {surrogate: {name: clip, hihg: 1}}", "clip has no setting 'hihg'; did you mean 'high'?"),
    ("training.steps: 3", "unknown key training.steps; write it as sections: training: {steps: ...}"),
    ("zzz: 1", "unknown key zzz; keys here are method, model, lora,"),
    ("training: {steps: 3, steps: 4}", "the key 'steps' is given twice"),
    # Case l03: what is not of the field's type.
    ("training: {learning_rate: abc}", "training.learning_rate: 'abc' is not a number"),
    ("training: {learning_rate: true}", "training.learning_rate: true and false are not numbers"),
    ("training: {learning_rate: [1]}", "training.learning_rate: [1] is not a number"),
    ("training: {learning_rate: null}", "training.learning_rate: null is not a number"),
    ("training: {steps: 4.5}", "training.steps: 4.5 is not a whole number"),
    ("training: {steps: 010}", "training.steps: '010' is octal to some readers"),
    ("training: {steps: 1:30}", "training.steps: '1:30' is not a number"),
    ("training: {steps: None}", "training.steps: 'None' is text; write null for no value"),
    ("prompts: {train: [a, 3]}", "prompts.train[1]"),
    ("prompts: {shuffle: maybe}", "prompts.shuffle: 'maybe' is neither true nor false"),
    ("model: [x]", "model is ['x'], but it is a section with keys of its own"),
    ("rollout: null", "rollout is null, but it is a section with keys of its own"),
    ("lora: true", "lora is true, but it is a section with keys of its own"),
    ("rewards: 5", "rewards: 5 should be a list"),
    ("rewards: [5]", "rewards[0]: 5 should be a mapping"),
    ("rewards: [{weight: 2}]", "rewards[0].name: it is missing"),
    ("objective: {kl: 0.1}", "objective.kl: 0.1 should be a mapping of keys to values"),
    (
        "lora: {target_modules: all}",
        "lora.target_modules: 'all' should be a list, for example [a, b] or 'all-linear'",
    ),
    ("training: {adam_betas: [0.9]}", "training.adam_betas[1]: it is missing"),
    # Case l07: ranges.
    ("rollout: {temperature: 0}", "rollout.temperature: 0.0 should be from 0.001 to 1000"),
    ("rollout: {temperature: .inf}", "rollout.temperature: inf is not finite"),
    ("rollout: {temperature: .nan}", "rollout.temperature: nan is not finite"),
    ("rollout: {group_size: 0}", "rollout.group_size: 0 should be greater than or equal to 1"),
    ("rollout: {group_size: -3}", "rollout.group_size: -3 should be"),
    ("rollout: {top_p: 0}", "rollout.top_p: 0.0 should be greater than 0"),
    ("rollout: {top_p: 1.1}", "rollout.top_p: 1.1 should be less than or equal to 1"),
    ("rollout: {top_k: 0}", "rollout.top_k: 0 should be greater than or equal to 1"),
    ("rollout: {min_p: 2}", "rollout.min_p: 2.0 should be less than or equal to 1"),
    ("objective: {surrogate: {low: -0.2}}", "low: -0.2 should be greater than 0"),
    ("objective: {surrogate: {low: 1}}", "low: 1.0 should be less than 1"),
    ("objective: {surrogate: {dual: 0.5}}", "dual: 0.5 should be greater than 1"),
    ("objective: {kl: {beta: -1}}", "objective.kl.beta: -1.0 should be greater than or equal to 0"),
    ("objective: {correction_cap: 0}", "objective.correction_cap: 0.0 should be greater than or equal to 1"),
    (
        "training: {learning_rate: -1e-6}",
        "training.learning_rate: -1e-06 should be greater than or equal to 0",
    ),
    ("training: {steps: 0}", "training.steps: 0 should be greater than or equal to 1"),
    ("training: {max_grad_norm: 0}", "training.max_grad_norm: 0.0 should be greater than 0"),
    ("training: {adam_betas: [0.9, 1.0]}", "training.adam_betas[1]: 1.0 should be less than 1"),
    ("lora: {dropout: 1}", "lora.dropout: 1.0 should be less than 1"),
    ("run: {seed: -1}", "run.seed: -1 should be greater than or equal to 0"),
    ("objective: {advantage: 5}", "objective.advantage: 5 should be"),
    (
        "objective: {advantage: {name: length_buckets, of: gae}}",
        "of is gae, which asks for more than the rewards",
    ),
    (
        "objective: {advantage: {name: length_buckets, of: {name: group_zscore, eps: x}}}",
        "eps: 'x' is not a number",
    ),
    (
        "objective: {advantage: {name: length_buckets, of: {name: group_zscore, std: x}}}",
        "std: 'x' should be 'sample'",
    ),
    ("objective: {advantage: {name: length_buckets, of: {eps: 1}}}", "of: it has no name"),
    ("objective: {kl: {controller: {name: interval, low: 5, high: 1}}}", "the interval needs low below high"),
    ("objective: {kl: {beta: 0, controller: interval}}", "the controller interval has nothing to steer"),
    (
        "objective: {kl: {estimator: k3_ratio, place: reward}}",
        "where the policy is the old one and the ratio 1",
    ),
    ("objective: {truncated: penalise, overlong_buffer: 999}", "more than rollout.max_new_tokens, 256"),
    ("rollout: {temperature_schedule: 0.5}", "rollout.temperature_schedule"),
    (
        "objective: {ratio: sequence}",
        "objective.ratio: no ratio is called 'sequence'; there are sequence_geometric, sequence_product, token",
    ),
    ("objective: {kl: {estimator: k9}}", "no KL estimator is called 'k9'; there are k1, k2, k3, k3_ratio"),
]


@pytest.mark.parametrize(("text", "why"), WRONG_TREES, ids=[text for text, _ in WRONG_TREES])
def test_a_wrong_file_is_one_sentence_with_the_key(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    message = str(caught.value)
    # A whole number given to a decimal field is judged before or after it becomes one; both spellings are right.
    assert why in message or why.replace(".0 should", " should") in message, message
    assert "run.yaml: " in message
    assert "\n" not in message


WRONG_WORDS = [
    (
        ["--learning-rat", "1e-5"],
        "'--learning-rat': settings are given as key=value, for example training.learning_rate",
    ),
    (["--learning-rate=1e-5"], "settings are given as key=value, for example training.learning_rate=..."),
    (["--steps=4"], "settings are given as key=value, for example training.steps=..."),
    (["training.learning_rate"], "settings are given as key=value"),
    (
        ["training.learning_rat=1"],
        "command line: unknown key training.learning_rat; did you mean training.learning_rate?",
    ),
    (["learning_rate=1e-5"], "training.learning_rate"),
    (["training.learning_rate=high"], "command line: training.learning_rate: 'high' is not a number"),
    (["training.learning_rate="], "training.learning_rate= has no value; write training.learning_rate=null"),
    (["training.steps="], "training.steps= has no value; write training.steps=null for none"),
    (["run.dir=  "], "run.dir= has no value"),
    (["run.dir=#x"], "run.dir= has no value"),
    (["training.steps=10000000000000000000000000e999999"], "inf is not a whole number"),
    (["run.seed=9223372036854775808"], "run.seed: 9223372036854775808 should be less than or equal to"),
    (["rollout.temperature=1e-4"], "rollout.temperature: 0.0001 should be from 0.001 to 1000"),
    (["rollout.temperature=1e4"], "rollout.temperature: 10000.0 should be from 0.001 to 1000"),
    (["evaluate.temperature=1e-9"], "evaluate.temperature: 1e-09 should be from 0.001 to 1000"),
    (["run.dir=" + "a" * 300], "has a part of 300 bytes, but file names have at most 255"),
    (["prompts.train=" + "a" * 300], "has a part of 300 bytes"),
    (["model.name=" + "a" * 300], "has a part of 300 bytes"),
    (['run.dir="a\\0b"'], "holds a NUL character"),
    (["training.steps=" + "9" * 5000], "a number of 5000 digits; no setting is that large"),
    (["objective.preset=x"], "command line: objective: there is no preset 'x'"),
    (["=5"], "'=5': the key is empty"),
    (["training..steps=1"], "the key is empty"),
    (["training=5"], "command line: training is 5, but it is a section"),
    (["prompts.train=[a"], "command line, prompts.train: line 1: not readable as YAML"),
    (["prompts.train=a b: c"], "command line: unknown key prompts.train[0].a b"),
    (["rewards.0.weight=2"], "there is no rewards.0, since rewards has 0 entries"),
    (
        ["rewards=[exact]", "rewards.0.wieght=2"],
        "unknown key rewards[0].wieght; did you mean rewards[0].weight?",
    ),
    (["rewards=[exact]", "rewards.0.weight=x"], "command line: rewards[0].weight: 'x' is not a number"),
    (["objective=drgrpo"], "there is no preset 'drgrpo': did you mean 'dr_grpo'"),
    (["training.steps.more=1"], "training.steps: {'more': 1} is not a number"),
]


@pytest.mark.parametrize(("words", "why"), WRONG_WORDS, ids=[" ".join(words) for words, _ in WRONG_WORDS])
def test_a_wrong_word_is_one_sentence(words: list[str], why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({}, words)
    assert why in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    "tree", [{1: 2}, {"rollout": {1: 2}}, {"rewards": {1: {}}}, {"objective": {"advantage": {}, 3: 4}}]
)
def test_keys_that_are_not_text_are_refused_too(tree: dict[Any, Any]) -> None:
    with pytest.raises(ConfigError):
        load(tree)


def test_several_complaints_are_counted_and_the_first_is_said() -> None:
    with pytest.raises(ConfigError, match=r"rollout\.temperature: .* \(and 1 more\)$"):
        load({"rollout": {"temperature": -1}, "training": {"learning_rate": "x"}})


def test_the_base_of_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "run.yaml").write_text("run: {seed: 1}\n")
    assert load("deep/run.yaml").base == folder
    assert load("deep/run.yaml", base=tmp_path).base == tmp_path
    assert load({}).base == tmp_path
    assert load(load("deep/run.yaml")).base == folder


@pytest.mark.parametrize("stated", ["data", "absolute"])
def test_a_stated_base_is_taken_once(tmp_path: Path, stated: str) -> None:
    path = tmp_path / "run.yaml"
    wanted = tmp_path / "data"
    path.write_text(yaml.dump({"run": {"base": str(wanted) if stated == "absolute" else stated}}))
    loaded = load(path)
    assert loaded.base == wanted
    assert load(loaded).base == wanted
    assert load(load(loaded), ["run.seed=3"]).base == wanted


def test_a_loaded_configuration_is_not_changed_by_loading_it_again() -> None:
    tree = {"objective": {"advantage": "group_mean"}, "rewards": ["exact"]}
    load(tree, ["rewards.0.weight=3", "objective.kl.beta=0.1"])
    assert tree == {"objective": {"advantage": "group_mean"}, "rewards": ["exact"]}


# What the file holds, what the words add, and whom the complaint names.
PLACES = [
    ({}, ["training.mini_batches=70"], "command line: training.mini_batches is 70"),
    ({}, ["training.warmup_steps=5", "training.steps=2"], "command line: training.warmup_steps is 5"),
    ({}, ["rollout.group_size=1"], "command line: rollout.group_size is 1"),
    ({"lora": {}}, ["reference={dtype: float32}"], "command line: reference: with lora"),
    ({"training": {"steps": 2}}, ["training.epochs=1"], "command line: training: give steps or epochs"),
    ({"objective": {"old_source": "sampler"}}, ["rollout.top_p=0.5"], "command line: objective.old_source"),
    # Nothing that the sentence is about was given as a word.
    (
        {"training": {"steps": 2, "epochs": 1}},
        ["training.learning_rate=1"],
        "configuration: training: give steps",
    ),
    ({"rollout": {"group_size": 1}}, ["training.steps=2"], "configuration: rollout.group_size is 1"),
    ({"rollout": {"group_size": 1}}, ["model.name=tiny"], "configuration: rollout.group_size is 1"),
    ({"objective": {"preset": "x"}}, [], "configuration: objective: there is no preset 'x'"),
    ({}, ["rewards=[{weight: 2}]"], "command line: rewards[0].name: it is missing"),
]


@pytest.mark.parametrize(("tree", "words", "start"), PLACES, ids=[start[:50] for _, _, start in PLACES])
def test_a_complaint_names_where_its_value_was_given(
    tree: dict[str, Any], words: list[str], start: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tree, words)
    assert str(caught.value).startswith(start), str(caught.value)


def test_null_is_written_out_and_an_empty_value_in_a_file_is_null(tmp_path: Path) -> None:
    assert load({"training": {"steps": 3}}, ["training.steps=null"]).config.training.steps is None
    assert load({"run": {"dir": "a"}}, ["run.dir=~"]).config.run.dir is None
    assert load({}, ["prompts.system_prompt=''"]).config.prompts.system_prompt == ""
    path = tmp_path / "run.yaml"
    path.write_text("training: {steps: }\n")
    assert load(path).config.training.steps is None


def test_the_home_folder_is_known_wherever_a_path_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    keys = ("model.name", "model.tokenizer", "model.chat_template", "lora.adapter")
    keys += ("prompts.train", "prompts.held_out", "run.dir", "run.base")
    config = load({}, [f"{key}=~/x" for key in keys] + ["prompts.held_out={source: ~/x}"]).config
    sources = ("prompts.train", "prompts.held_out")
    assert {at(config, key) for key in keys if key not in sources} == {"/home/me/x"}
    assert {at(config, f"{key}.source") for key in sources} == {"/home/me/x"}
    assert load({"run": {"dir": "a~/~"}}).config.run.dir == "a~/~"  # only where the path starts with it


def test_the_limits_themselves_are_taken() -> None:
    config = load({}, ["run.seed=9223372036854775807", "rollout.temperature=0.01"]).config
    assert (config.run.seed, config.rollout.temperature) == (2**63 - 1, 0.01)
    assert load({}, ["rollout.temperature=50"]).config.rollout.temperature == 50
    assert load({}, ["evaluate.temperature=0"]).config.evaluate.temperature == 0


def test_a_mapping_may_hold_numbers_of_numpy_and_path_objects() -> None:
    tree = {
        "training": {"steps": np.int64(7), "learning_rate": np.float32(0.5)},
        "prompts": {"shuffle": np.bool_(False), "train": Path("data/train.jsonl")},
        "run": {"dir": Path("runs/one"), "seed": np.array(3)},
    }
    config = load(tree).config
    assert (config.training.steps, config.training.learning_rate) == (7, 0.5)
    assert type(config.training.steps) is int
    assert config.prompts.shuffle is False
    assert (config.prompts.train[0].source, config.run.dir) == ("data/train.jsonl", "runs/one")
    assert config.run.seed == 3
    for wrong in (np.array([1, 2]), np.bool_(True), np.float64(1.5), 1j, np.int64(0)):
        with pytest.raises(ConfigError, match=r"training\.steps: "):
            load({"training": {"steps": wrong}})


@pytest.mark.parametrize(
    "value",
    ["x" * 5000, list(range(5000)), {"a" * 3000: "b" * 3000}, 10**5000],
    ids=["text", "list", "mapping", "number"],
)
def test_a_long_value_is_cut_in_a_complaint(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        load({"training": {"learning_rate": value}})
    assert 0 < len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "word", ["{}", "{}=1", "training.{}=1", "objective.advantage={}", "objective.preset={}"]
)
def test_a_long_key_or_name_is_cut_in_a_complaint(word: str) -> None:
    with pytest.raises(ConfigError, match=r"x{100}\.\.\.") as caught:
        load({}, [word.format("x" * 3000)])
    assert len(str(caught.value)) < 500


def test_a_configuration_below_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "c.yaml").write_text("training: {steps: 3}")
    loaded = load("~/c.yaml")
    assert loaded.config.training.steps == 3
    assert loaded.base == tmp_path
