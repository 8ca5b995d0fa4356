"""From a file, a mapping and `key=value` words to a checked configuration that knows where each value came from."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from groupwise import registry
from groupwise.config import presets, yaml
from groupwise.config.base import said
from groupwise.config.choice import Choice, as_choice, plain_message
from groupwise.config.foreign import OTHERS, hint_for, setting_for
from groupwise.config.keys import by_last_part, known_keys, leaves, section_of
from groupwise.config.prompts import as_sources
from groupwise.config.rewards import SCORERS, ScorerConfig
from groupwise.config.run import RunConfig
from groupwise.errors import ConfigError
from groupwise.secrets import secret_in

_CHOICES = ("advantage", "surrogate", "aggregation", "controller")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A checked configuration and its history."""

    config: RunConfig
    """Every value, resolved."""
    origins: Mapping[str, str]
    """Dotted key of each value to where it came from: `default`, `preset grpo`, a file, `command line`."""
    base: Path
    """The folder that data, reward files and templates are relative to."""


def load(
    source: str | Path | Mapping[str, Any] | RunConfig | LoadedConfig,
    overrides: Sequence[str] = (),
    *,
    base: Path | None = None,
) -> LoadedConfig:
    """Read and check a configuration. Later wins: defaults, preset, file, `key=value`.

    A preset named by `key=value` is laid over the file, so that naming another one always has its effect.

    Args:
        source: a YAML file, the same as a mapping, or an object checked before.
        overrides: `training.learning_rate=1e-5` and the like; the value is read as YAML, so JSON works too, and
            `rewards.0.weight=2` changes one entry of a list.
        base: folder for relative paths; the file's own by default, else the working folder.

    Raises:
        ConfigError: one sentence naming the key and the remedy.
    """
    if isinstance(source, LoadedConfig):
        base = base or source.base
        source = source.config
    if isinstance(source, RunConfig):
        tree, place = source.model_dump(mode="json"), "configuration object"
    elif isinstance(source, Mapping):
        tree, place = dict(source), "configuration"
    else:
        path = Path(os.path.expanduser(source))
        tree, place = yaml.read(path), path.name
        base = base or path.resolve().parent
    try:
        return _resolve(tree, place, overrides, base or Path.cwd())
    except ConfigError as error:  # a key or a name of thousands of characters is told by its beginning
        raise ConfigError(re.sub(r"(\S{200})\S+", r"\1...", str(error))) from None


def _resolve(tree: dict[str, Any], place: str, overrides: Sequence[str], base: Path) -> LoadedConfig:
    given = _normal(tree, place)
    words: dict[str, Any] = {}
    for word in overrides:
        words = _merge(words, _normal(_override(word), "command line"))
    for layer, where in ((given, place), (words, "command line")):
        _refuse_secrets(layer, where)
        _refuse_unknown_keys(layer, RunConfig, where)
    layers: list[tuple[dict[str, Any], str]] = []  # the later, the stronger
    for layer, where in ((given, place), (words, "command line")):
        try:
            name = _preset_name(layer) or (None if layers else "grpo")
            if name is not None:
                layers.append((presets.load(name), f"preset {name}"))
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        layers.append((layer, where))
    merged: dict[str, Any] = {"rewards": [], "evaluate": {"rewards": []}}
    for layer, _ in layers:
        merged = _merge(merged, layer)
    try:
        config = RunConfig.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(_sentence(error, place, words)) from None
    origins = {
        key: next((where for layer, where in reversed(layers) if _holds(layer, key)), "default")
        for key, _ in leaves(config.model_dump(mode="json"))
    }
    filled = _fill_in(config)
    if filled is not config:
        origins["objective.aggregation.length"] = "rollout.max_new_tokens"
    if config.run.base is not None:
        # Stated in full, so that a configuration that is loaded once more does not go down the folders twice.
        base = (base / Path(config.run.base).expanduser()).resolve()
        filled = filled.model_copy(update={"run": filled.run.model_copy(update={"base": str(base)})})
    return LoadedConfig(config=filled, origins=origins, base=base)


def _refuse_secrets(tree: Mapping[str, Any], place: str) -> None:
    """First of all checks, since the sentence of another would show the value."""
    key = secret_in(tree)
    if key is not None:
        raise ConfigError(
            f"{place}: {key} looks like a key or a password, and a configuration is written into the run's folder; put "
            "it into an environment variable, and let the reward read that (http and judge have key_variable for its "
            "name)"
        )


def _fill_in(config: RunConfig) -> RunConfig:
    """The same object, or one with the values that follow from others."""
    aggregation = config.objective.aggregation
    if aggregation.name != "constant" or aggregation.settings.get("length") is not None:
        return config
    length = Choice.model_validate({"name": "constant", "length": config.rollout.max_new_tokens})
    objective = config.objective.model_copy(update={"aggregation": length})
    return config.model_copy(update={"objective": objective})


def _normal(tree: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Short forms spelled out: a preset's, a model's or a choice's name alone."""
    tree = dict(tree)
    for section, key in (("objective", "preset"), ("model", "name")):
        if isinstance(tree.get(section), str):
            tree[section] = {key: tree[section]}
    if isinstance(tree.get("objective"), Mapping):
        objective = dict(tree["objective"])
        for key in _CHOICES:
            if key in objective:
                objective[key] = as_choice(objective[key])
        if isinstance(objective.get("kl"), Mapping) and "controller" in objective["kl"]:
            controller = as_choice(objective["kl"]["controller"])
            objective["kl"] = {**objective["kl"], "controller": controller}
        tree["objective"] = objective
    _spell_rewards(tree)
    if isinstance(tree.get("evaluate"), Mapping):
        tree["evaluate"] = dict(tree["evaluate"])
        _spell_rewards(tree["evaluate"])
    if isinstance(tree.get("prompts"), Mapping):
        prompts = dict(tree["prompts"])
        for key in ("train", "held_out"):
            given = prompts.get(key)
            # Entries by number, as the command line gives them, are left as they are.
            if key in prompts and not (isinstance(given, Mapping) and _numbers(given)):
                prompts[key] = as_sources(given)
        tree["prompts"] = prompts
    for key, value in tree.items():
        field = RunConfig.model_fields.get(key)
        if field is None or isinstance(value, Mapping | BaseModel) or key == "rewards":
            continue
        if section_of(field.annotation) is None:
            continue
        if value is not None or field.is_required() or field.default is not None:
            raise ConfigError(f"{place}: {key} is {said(value)}, but it is a section with keys of its own")
    return tree


def _spell_rewards(tree: dict[str, Any]) -> None:
    """Rewards under their key as a list of mappings, where single names stand for them."""
    if isinstance(tree.get("rewards"), str):
        tree["rewards"] = [tree["rewards"]]
    if isinstance(tree.get("rewards"), list | tuple):
        tree["rewards"] = [as_choice(reward) for reward in tree["rewards"]]


def _preset_name(tree: Mapping[str, Any]) -> str | None:
    objective = tree.get("objective")
    name = objective.get("preset") if isinstance(objective, Mapping) else None
    if name is not None and not isinstance(name, str):
        raise ConfigError(
            f"objective.preset: {said(name)} is not the name of a preset; there are {', '.join(presets.names())}"
        )
    return name


def _override(word: str) -> dict[str, Any]:
    key, equals, text = word.partition("=")
    if word.startswith("-") or not equals:
        bare = word.lstrip("-").replace("-", "_").split("=")[0]
        full = setting_for(bare) or "training.learning_rate"
        raise ConfigError(f"{word!r}: settings are given as key=value, for example {full}=...")
    value = yaml.parse(text, place=f"command line, {key}")
    if value is None and text.strip().lower() not in (
        "null",
        "~",
    ):  # such as an unset variable of the shell's
        raise ConfigError(f"{key}= has no value; write {key}=null for none")
    key = re.sub(r"\[(\d+)\]", r".\1", key)
    if not all(key.split(".")):
        raise ConfigError(f"{word!r}: the key is empty; settings are given as training.steps=100")
    for part in reversed(key.split(".")):
        value = {part: value}
    tree: dict[str, Any] = value
    return tree


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `under`, key by key. A choice with another name replaces the whole choice."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, list) and _numbers(value):
            merged[key] = [
                _merge(entry, value[str(i)]) if str(i) in value else entry for i, entry in enumerate(below)
            ]
            missing = next((number for number in value if int(number) >= len(below)), None)
            if missing is not None:
                raise ConfigError(
                    f"command line: there is no {key}.{missing}, since {key} has {len(below)} entr"
                    f"{'y' if len(below) == 1 else 'ies'}, counted from 0; give the whole list, as in {key}=[...]"
                )
        elif isinstance(value, Mapping) and isinstance(below, Mapping):
            other_choice = key in _CHOICES and value.get("name", below.get("name")) != below.get("name")
            merged[key] = dict(value) if other_choice else _merge(below, value)
        else:
            merged[key] = value
    return merged


def _numbers(tree: Mapping[str, Any]) -> bool:
    """True for `{"0": {...}}`: entries of a list by their number."""
    return bool(tree) and all(
        str(key).isdecimal() and isinstance(value, Mapping) for key, value in tree.items()
    )


def _holds(tree: Mapping[str, Any], key: str) -> bool:
    node: Any = tree
    for part in key.split("."):
        if isinstance(node, list | tuple) and part.isdigit():
            if int(part) >= len(node):
                return False
            node = node[int(part)]
            if isinstance(node, str):
                return True
        elif isinstance(node, Mapping) and part in node:
            node = node[part]
        else:
            return False
    return True


def _refuse_unknown_keys(tree: Any, section: type[BaseModel], place: str, prefix: str = "") -> None:
    if isinstance(tree, list | tuple):
        for i, item in enumerate(tree):
            _refuse_unknown_keys(item, section, place, f"{prefix[:-1]}[{i}].")
        return
    if not isinstance(tree, Mapping):
        return
    for key, value in tree.items():
        if key not in section.model_fields:
            remedy = _of_scorer(str(key), tree) if issubclass(section, ScorerConfig) else None
            remedy = remedy or _remedy(str(key), section, prefix)
            raise ConfigError(f"{place}: unknown key {prefix}{key}; {remedy}")
        inner = section_of(section.model_fields[key].annotation)
        if inner is not None and inner is not Choice:
            default = section.model_fields[key].default
            if isinstance(default, dict):  # sections by names that are free
                if isinstance(value, Mapping):
                    for name, each in value.items():
                        _refuse_unknown_keys(each, inner, place, f"{prefix}{key}.{name}.")
                continue
            listed = isinstance(default, tuple)
            if listed and isinstance(value, Mapping) and _numbers(value):
                value = list(value.values())
            _refuse_unknown_keys(value, inner, place, f"{prefix}{key}.")


def _of_scorer(key: str, entry: Mapping[str, Any]) -> str | None:
    """What to do about a key of a reward's entry that is a scorer's name or one of its settings; None for another."""
    if key in registry.names(SCORERS):
        return f"a reward is written {key}, or {{name: {key}, weight: 1}}"
    name = entry.get("name")
    if name in registry.names(SCORERS) and key in registry.settings(registry.find(SCORERS, name)):
        return f"it is a setting of {name}; write settings: {{{key}: ...}}"
    return None


def _remedy(key: str, section: type[BaseModel], prefix: str) -> str:
    """What to do about an unknown key: the nearest here, then the nearest anywhere, then all there are."""
    known = known_keys()
    if key in known:
        return f"write it as sections: {key.replace('.', ': {')}: ...{'}' * key.count('.')}"
    foreign = hint_for(key)
    if foreign is not None:
        return foreign
    near = registry.nearest(key, section.model_fields)
    if near is not None:
        return f"did you mean {prefix}{near}?"
    anywhere = by_last_part()
    for names in (anywhere, OTHERS):
        near = registry.nearest(key, names)
        if near is not None:
            return f"did you mean {names[near]}?"
    return f"keys here are {', '.join(section.model_fields)}"


def _sentence(error: ValidationError, place: str, words: Mapping[str, Any]) -> str:
    """The first complaint as one sentence; how many more there are."""
    complaints: dict[str, list[str]] = {}
    for complaint in error.errors():
        # A value that may be one thing or another has a complaint for each, told apart by words such as `tuple[...]`.
        parts = [
            p for p in complaint["loc"] if not (isinstance(p, str) and re.search(r"[\[ ]|Config$|Choice$", p))
        ]
        key = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts).lstrip(".")
        complaints.setdefault(key, []).append(plain_message(complaint))
    key, messages = next(iter(complaints.items()))
    first, *others = messages
    message = " or ".join([first, *(other.split(" should be ", 1)[-1] for other in others)])
    where = "command line" if _came_from(words, re.sub(r"\[(\d+)\]", r".\1", key), message) else place
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    return f"{where}: {key + ': ' if key else ''}{message}{more}"


def _came_from(words: Mapping[str, Any], key: str, message: str) -> bool:
    """Whether a complaint is about something given on the command line: its key, or one that its sentence names."""
    whole = key == "" or key in RunConfig.model_fields or re.fullmatch(r"rewards\.\d+", key) is not None
    if not whole:
        missing = message == "it is missing"
        return _holds(words, key.rpartition(".")[0] if missing else key)
    if key and _holds(words, key) and not isinstance(words.get(key.split(".")[0]), Mapping):
        return True
    for leaf in (each for each, _ in leaves(words) if each):
        section, last = leaf.partition(".")[0], leaf.rpartition(".")[2]
        named = leaf in message or re.search(rf"\b{re.escape(last)}\b", message)
        inside = key != "" and leaf.startswith(f"{key}.")
        # A last part that is an ordinary word, such as name, tells only inside the section that is complained about.
        if named and (leaf in message or inside or "_" in last):
            return True
        if section in ("lora", "reference", "rewards") and re.search(rf"\b{section}\b", message):
            return True
    return False
