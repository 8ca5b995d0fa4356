"""The exact objective of a configuration: a formula with its numbers filled in, and where each came from.

Each factor's formula is written once, beside the function that computes it; nothing here branches on an algorithm's
name.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise import registry
from groupwise.config import LoadedConfig, RunConfig, load, presets
from groupwise.config.choice import Choice, check_settings
from groupwise.config.keys import leaves
from groupwise.config.objective import ADVANTAGES, AGGREGATIONS, KL_CONTROLLERS, SURROGATES
from groupwise.errors import ConfigError
from groupwise.objective import dpo, kl, overlong, ratios, value_loss
from groupwise.objective.estimator import Estimator
from groupwise.rewards import build

_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One choice that the objective is made of."""

    name: str
    """What it is called in the output."""
    formula: str
    """Its formula or rule, numbers filled in."""
    keys: tuple[str, ...]
    """Beginnings of the dotted keys that decide it."""


def open_named(name: str, overrides: Sequence[str] = ()) -> LoadedConfig:
    """The configuration that a preset's name, a file or a run folder stands for.

    Raises:
        ConfigError: neither a preset nor a file; or the configuration is wrong.
    """
    path = Path(name)
    if name in presets.names() and not path.is_file():
        return load({"objective": name}, overrides)
    if name == "dpo" and not path.is_file():
        return load({"method": "dpo"}, overrides)
    if all((path / file).is_file() for file in ("config.yaml", "manifest.json")):
        return load(path / "config.yaml", overrides)
    if path.exists() or path.suffix in (".yaml", ".yml", ".json") or len(path.parts) > 1:
        return load(path, overrides)
    near = registry.nearest(name, presets.names())
    hint = f"did you mean {near}?" if near else f"there are {', '.join(presets.names())}"
    raise ConfigError(f"{name!r} is neither a preset nor a configuration file; {hint}")


def explain(name: str, loaded: LoadedConfig) -> str:
    """The objective of one configuration as text.

    Args:
        name: what the user calls it.
        loaded: the configuration and its history.
    """
    if loaded.config.method == "dpo":
        return _explain_pairs(name, loaded)
    blocks = [f"{name}\n\n{_indented('minimise  ' + loss(loaded))}\n\n{_indented(_legend(loaded.config))}\n"]
    for factor in factors(loaded):
        lines = [_factor_line(factor.name, factor.formula)]
        lines += [_hanging(f"{where}: {values}", 16) for where, values in _origins(factor, loaded).items()]
        blocks.append("\n".join(lines))
    citation = _citation(loaded.config.objective.preset)
    return "\n".join([*blocks, "", f"preset {loaded.config.objective.preset}", _indented(citation)])


def _explain_pairs(name: str, loaded: LoadedConfig) -> str:
    """The loss of preference pairs as text."""
    chosen, training = loaded.config.dpo, loaded.config.training
    formula = (
        dpo.FORMULA if chosen.label_smoothing == 0 else f"{dpo.FORMULA_SMOOTHED},{dpo.FORMULA.split(',')[1]}"
    )
    formula = formula.format(beta=chosen.beta, label_smoothing=chosen.label_smoothing)
    legend = (
        "over the P pairs of an optimiser batch; policy and reference are log-probs of a whole response, its end "
        "included, summed over tokens; the reference is the policy before its first update."
    )
    pairs = f"{chosen.pairs_per_step} a step, columns {chosen.chosen} and {chosen.rejected}"
    norm = "not limited" if training.max_grad_norm is None else f"at most {training.max_grad_norm:g}"
    found = [
        Factor(name="loss", formula=formula, keys=("dpo.beta", "dpo.label_smoothing")),
        Factor(name="pairs", formula=pairs, keys=("dpo.pairs_per_step", "dpo.chosen", "dpo.rejected")),
        Factor(
            name="update",
            formula=f"AdamW, learning rate {training.learning_rate:g}, gradient norm {norm}",
            keys=("training.learning_rate", "training.max_grad_norm"),
        ),
    ]
    minimised = f"minimise  (1/P) sum [ {formula.split(',')[0]} ]"
    blocks = [f"{name}\n\n{_indented(minimised)}\n\n{_indented(_filled(legend))}\n"]
    for factor in found:
        lines = [_factor_line(factor.name, factor.formula)]
        lines += [_hanging(f"{where}: {values}", 16) for where, values in _origins(factor, loaded).items()]
        blocks.append("\n".join(lines))
    source = "Direct Preference Optimization (Rafailov et al. 2023, arXiv 2305.18290), equation 7."
    return "\n".join([*blocks, "", "method dpo", _indented(source)])


def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH - 4, break_on_hyphens=False)


def side_by_side(named: Sequence[tuple[str, LoadedConfig]]) -> str:
    """Several objectives factor by factor; `*` marks the factors that differ.

    Args:
        named: what the user calls each, and the configuration.
    """
    offline = next((name for name, loaded in named if loaded.config.method == "dpo"), None)
    if offline is not None:
        raise ConfigError(
            f"{offline} trains on pairs and shares no factor with an objective on rollouts; explain it alone"
        )
    width = max(len(name) for name, _ in named)
    blocks = ["* marks what differs\n"]
    rows: list[tuple[str, list[str]]] = [("loss", [f"minimise  {loss(loaded)}" for _, loaded in named])]
    per_config = [{factor.name: factor.formula for factor in factors(loaded)} for _, loaded in named]
    for factor in dict.fromkeys(key for formulas in per_config for key in formulas):
        rows.append((factor, [formulas.get(factor, "none") for formulas in per_config]))
    for title, formulas in rows:
        same = len(set(formulas)) == 1
        lines = [f"{' ' if same else '*'} {title}"]
        shown = [("all" if len(named) > 2 else "both", formulas[0])] if same else []
        shown = shown or [(name, formula) for (name, _), formula in zip(named, formulas, strict=True)]
        lines += [
            textwrap.fill(
                formula,
                _WIDTH,
                initial_indent=f"    {name:<{width}}  ",
                subsequent_indent=" " * (width + 6),
                break_on_hyphens=False,
            )
            for name, formula in shown
        ]
        blocks.append("\n".join(lines))
    for preset in dict.fromkeys(loaded.config.objective.preset for _, loaded in named):
        blocks.append(f"\npreset {preset}\n{_indented(_citation(preset))}")
    return "\n".join(blocks)


def loss(loaded: LoadedConfig) -> str:
    """What is minimised, in terms of the factors' symbols."""
    config = loaded.config
    objective = config.objective
    aggregation = _formula(*_parts(AGGREGATIONS, objective.aggregation, loaded.base))
    terms = [f"-{'' if _old_is_sampler(config) else 'c_t '}S_t"]
    if objective.kl.beta and objective.kl.place == "loss":
        terms.append(f"+ {_beta(config)} KL_t")
    if objective.entropy_bonus:
        terms.append(f"{'-' if objective.entropy_bonus > 0 else '+'} {abs(objective.entropy_bonus):g} H_t")
    return f"{aggregation} [ {' '.join(terms)} ]"


def factors(loaded: LoadedConfig) -> list[Factor]:
    """Every choice of the objective in the order of the computation."""
    config, base = loaded.config, loaded.base
    objective = config.objective
    found = []
    if config.rewards:
        weighted = " + ".join(build(config.rewards, base=base).formulas)
        said = ("name", "weight", "settings", "gate", "normalise", "smoothing", "schedule")
        keys = tuple(f"rewards.{i}.{key}" for i in range(len(config.rewards)) for key in said)
        found.append(Factor(name="reward", formula=f"r_i = {weighted}", keys=keys))
    for name, symbol, package, choice in (
        ("advantage", "", ADVANTAGES, objective.advantage),
        ("surrogate", "S_t = ", SURROGATES, objective.surrogate),
        ("aggregation", "over the batch: ", AGGREGATIONS, objective.aggregation),
    ):
        formula = symbol + _formula(*_parts(package, choice, base))
        found.append(Factor(name=name, formula=formula, keys=(f"objective.{name}",)))
        if name == "advantage":
            found += _critic(loaded)
            ratio = f"{ratios.FORMULAS[objective.ratio]}; log rho is held within +-{ratios.LOG_RATIO_LIMIT:g}"
            found.append(
                Factor(
                    name="ratio",
                    formula=ratio,
                    keys=("objective.ratio", "rollout.temperature", "rollout.temperature_schedule"),
                )
            )
            found.append(_old(config))
    bonus = "none"
    if objective.entropy_bonus:
        bonus = f"H_t = entropy of the policy at token t, times {objective.entropy_bonus:g}, subtracted from the loss"
    ours = ":" not in objective.advantage.name  # what a function of one's own gives is not known
    flat = {
        "keep": ("advantage 0" if ours and _estimator(loaded).compares else "advantage by its formula")
        + "; counted in every divisor"
        + ("; its KL acts" if objective.kl.beta else ""),
        "drop": "left out of the update and of every divisor",
    }[objective.zero_spread]
    if config.rollout.max_redraws:
        times = config.rollout.max_redraws
        flat = f"the group is replaced by one of the next prompt, {times} times at most; then {flat}"
    limit = config.rollout.max_new_tokens
    buffer = objective.overlong_buffer or max(1, limit // 5)
    along = {
        "process": "each value normalised over the group's values; a token has the sum of those earned at it or later",
        "outcome": "summed over the response first",
    }
    cut = {
        "keep": "trained like any other",
        "mask": "counted in its group, left out of the loss and of every divisor",
        "penalise": overlong.FORMULA.format(
            penalty=objective.overlong_penalty, start=limit - buffer, buffer=buffer, limit=limit
        ),
    }
    found += [
        _leash(loaded),
        Factor(name="entropy", formula=bonus, keys=("objective.entropy_bonus",)),
        Factor(name="equal rewards", formula=flat, keys=("objective.zero_spread", "rollout.max_redraws")),
        Factor(name="dense rewards", formula=along[objective.credit], keys=("objective.credit",)),
        Factor(
            name="truncated",
            formula=cut[objective.truncated],
            keys=("objective.truncated", "objective.overlong"),
        ),
        *_recipes(config),
        _update(config),
    ]
    return found


def _recipes(config: RunConfig) -> list[Factor]:
    """What is done to the batch beside the objective, where it is."""
    found = []
    chosen, note, sure = config.objective.filter, config.objective.teaching, config.rollout.confidence
    if sure is not None:
        formula = (
            f"a token drawn with p > {sure.threshold:g} is drawn again, {sure.redraws} times at most; with M the "
            f"probability of such tokens, sampler_t = log p + log M^{sure.redraws} above, log p + log sum_k M^k, "
            f"k = 0..{sure.redraws}, below"
        )
        found.append(Factor(name="confidence", formula=formula, keys=("rollout.confidence",)))
    if chosen is not None:
        bounds = (
            ("T_i", chosen.min_tokens, chosen.max_tokens),
            ("r_i" if chosen.reward is None else chosen.reward, chosen.min_reward, chosen.max_reward),
        )
        kept = [f"{name} >= {low:g}" for name, low, _ in bounds if low is not None]
        kept += [f"{name} <= {high:g}" for name, _, high in bounds if high is not None]
        kept += [] if chosen.pattern is None else [f"the response holds {chosen.pattern!r}"]
        counted = "counts in its group" if chosen.counted else "does not count in its group either"
        formula = f"in the loss where {' and '.join(kept)}; what is left out {counted}"
        found.append(Factor(name="filter", formula=formula, keys=("objective.filter",)))
    if note is not None:
        below = config.evaluate.pass_reward if note.below is None else note.below
        answer = {"own": "keeps A_t", "mask": "is masked", "weight": f"has A_t = {note.weight:g}"}[
            note.answer
        ]
        formula = (
            f"where r_i < {below:g}, {note.text!r} is put {'before' if note.place == 'start' else 'behind'} the "
            f"answer, {f'with A_t = {note.weight:g}' if note.train_note else 'masked'}; the answer {answer}"
        )
        found.append(Factor(name="teaching", formula=formula, keys=("objective.teaching",)))
    return found


def _beta(config: RunConfig) -> str:
    """The KL coefficient: a number, or its symbol where it changes."""
    return f"{config.objective.kl.beta:g}" if config.objective.kl.controller.name == "fixed" else "beta"


def _leash(loaded: LoadedConfig) -> Factor:
    settings, keys = loaded.config.objective.kl, ("objective.kl",)
    if settings.beta == 0:
        return Factor(name="kl", formula="none: beta is 0, so no reference is loaded", keys=keys)
    formula = f"KL_t = {kl.FORMULAS[settings.estimator]}"
    if settings.reference_dropout:
        formula += f", {settings.reference_dropout:g} of the reference's last hidden features dropped, anew each step"
    for unit, cap in (("token", settings.cap_token), ("rollout", settings.cap_rollout)):
        if cap is not None:
            formula += f", at most {cap:g} per {unit}"
    beta = _beta(loaded.config)
    if settings.place == "loss":
        formula += f"; {beta} KL_t in the loss"
    elif _estimator(loaded).by_token:
        formula += (
            f" with policy_t = old_t; {beta} KL_t taken off the reward at token t, before the advantage"
        )
    else:
        formula += f" with policy_t = old_t; {beta} sum_t KL_t taken off r_i before the advantage"
    if beta == "beta":
        rule = _formula(*_parts(KL_CONTROLLERS, settings.controller, loaded.base))
        formula += f"; {rule}; it starts at {settings.beta:g}"
    return Factor(name="kl", formula=formula, keys=keys)


def _estimator(loaded: LoadedConfig) -> Estimator:
    choice = loaded.config.objective.advantage
    return Estimator(registry.find(ADVANTAGES, choice.name, base=loaded.base))


def _critic(loaded: LoadedConfig) -> list[Factor]:
    """The critic and its loss, where the advantage asks for values."""
    if "values" not in _estimator(loaded).needs:
        return []
    critic = loaded.config.critic
    where = {
        "own": "on a backbone of its own",
        "policy": "on the policy's hidden states, no gradient sent back",
    }
    loss_of = value_loss.FORMULA_UNCLIPPED if critic.clip is None else value_loss.FORMULA
    loss_of = loss_of.format(clip=critic.clip)
    formula = (
        f"V_t {where[critic.backbone]}; minimise  (1 / sum_i T_i) sum_i sum_t {loss_of}, R what was still to come; "
        f"AdamW, learning rate {critic.learning_rate:g}"
    )
    if critic.warmup_steps:
        formula += f"; the policy waits for the first {critic.warmup_steps} steps"
    return [Factor(name="critic", formula=formula, keys=("critic",))]


def _old(config: RunConfig) -> Factor:
    cap = config.objective.correction_cap
    unless = " (the trainer's, with c_t, where a model cannot take packed tokens)"
    rule = (
        f"old_t: the sampler's log-probs; c_t = 1{unless if config.objective.old_source == 'auto' else ''}"
        if _old_is_sampler(config)
        else f"old_t: the trainer's log-probs; c_t = min(exp(old_t - sampler_t), {cap:g}) corrects for the sampler's"
    )
    keys = (
        "objective.old_source",
        "rollout.engine",
        "rollout.overlap",
        "rollout.top_p",
        "rollout.top_k",
        "rollout.min_p",
        "rollout.confidence",
        "objective.correction_cap",
    )
    return Factor(name="old log-probs", formula=rule, keys=keys)


def _update(config: RunConfig) -> Factor:
    training = config.training
    passes, parts = training.updates_per_batch, training.mini_batches
    count = passes * parts
    often = "one update per batch, so rho = 1 up to rounding" if count == 1 else f"{count} updates per batch"
    if count > 1:
        often += f" ({passes} passes x {parts} mini-batches); rho is 1 before the first alone"
    norm = training.max_grad_norm
    limit = "not limited" if norm is None else f"at most {norm:g}"
    formula = f"{often}; AdamW, learning rate {training.learning_rate:g}, gradient norm {limit}"
    keys = ("updates_per_batch", "mini_batches", "learning_rate", "max_grad_norm")
    return Factor(name="update", formula=formula, keys=tuple(f"training.{key}" for key in keys))


def _old_is_sampler(config: RunConfig) -> bool:
    """What the run will decide for a model that takes packed tokens; one that does not falls back to the trainer's."""
    source = config.objective.old_source
    own = config.rollout.engine == "in_process" and not config.rollout.reshapes
    return source == "sampler" or (source == "auto" and own)


def _legend(config: RunConfig) -> str:
    named = "policy_t, old_t and reference_t" if config.objective.kl.beta else "policy_t and old_t"
    temperature, schedule = f"{config.rollout.temperature:g}", config.rollout.temperature_schedule
    if schedule is not None:
        temperature = f"T), T going from {temperature} to {schedule.final:g} over {schedule.steps} steps"
    else:
        temperature += ")"
    text = (
        "i counts the rollouts of an optimiser batch, 1..N (r, mean and std are over the rollouts of one prompt); t "
        "counts the trained tokens of rollout i, 1..T_i; S_t and what it is made of belong to token t of rollout i. "
        f"{named} are log-probs of softmax(logits / {temperature}."
    )
    return textwrap.fill(text, _WIDTH - 4, break_on_hyphens=False)


def _parts(package: str, choice: Choice, base: Path) -> tuple[Callable[..., Any], Any, dict[str, Any]]:
    """A chosen function, its module, and all its settings."""
    function = registry.find(package, choice.name, base=base)
    try:
        settings = check_settings(function, choice.settings)
    except ValueError as error:
        raise ConfigError(f"objective: {choice.name}: {error}") from None
    return function, inspect.getmodule(function), settings


def _formula(function: Callable[..., Any], module: Any, settings: Mapping[str, Any]) -> str:
    """The module's FORMULA with the settings in it, and FORMULA_SETTING where that setting is not None.

    A user's module may hold no FORMULA; its function is then shown as a call, with the first line of its docstring.
    """
    formula = getattr(module, "FORMULA", None)
    if not isinstance(formula, str):
        call = f"{registry.name_of(function)}({', '.join(f'{k}={v}' for k, v in settings.items())})"
        first = (inspect.getdoc(function) or "").partition("\n")[0]
        return f"{call}: {first}" if first else call
    try:
        text = formula.format(**settings)
    except (LookupError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"the FORMULA of {registry.name_of(function)} has braces around something else than its settings "
            f"({', '.join(settings) or 'it has none'}): {error}; double other braces, as in {{{{j}}}}"
        ) from None
    for key, value in settings.items():
        more = getattr(module, f"FORMULA_{key.upper()}", None)
        if more is not None and value is not None:
            text += more.format(**settings)
    return text


def _origins(factor: Factor, loaded: LoadedConfig) -> dict[str, str]:
    """Where the settings of a factor came from, to `key=value, ...` of these."""
    by_origin: dict[str, list[str]] = {}
    for key, value in leaves(loaded.config.model_dump(mode="json")):
        if any(key == start or key.startswith((f"{start}.", f"{start}_")) for start in factor.keys):
            by_origin.setdefault(loaded.origins.get(key, "default"), []).append(f"{key}={_plain(value)}")
    return {where: ", ".join(values) for where, values in by_origin.items()}


def _plain(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _citation(preset: str) -> str:
    """The comment lines of the preset's file: what it is and where it was published."""
    lines = presets.text(preset).splitlines()
    return "\n".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))


def _factor_line(name: str, formula: str) -> str:
    return textwrap.fill(
        formula, _WIDTH, initial_indent=f"{name:<14}  ", subsequent_indent=" " * 16, break_on_hyphens=False
    )


def _hanging(text: str, indent: int) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=" " * indent + "- ",
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")
