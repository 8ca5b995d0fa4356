"""Everything that can be read and checked before a model is loaded: data, rewards, and the objective's functions."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise import registry
from groupwise.config import LoadedConfig, RunConfig
from groupwise.config.choice import check_settings
from groupwise.config.critic import CriticConfig
from groupwise.config.objective import ADVANTAGES, AGGREGATIONS, KL_CONTROLLERS, SURROGATES
from groupwise.config.prompts import SourceConfig
from groupwise.errors import ConfigError, DataError
from groupwise.health.watch import checks_of
from groupwise.model.find import find_models
from groupwise.objective.estimator import Estimator
from groupwise.objective.kl import KL_ESTIMATORS
from groupwise.objective.loss import Objective
from groupwise.objective.ratios import RATIOS
from groupwise.prompts.curriculum import first_estimate
from groupwise.prompts.load import Row, check_rows, rows_from
from groupwise.prompts.overlap import without_repeats
from groupwise.prompts.sources import Read, read_sources
from groupwise.records import Prompt
from groupwise.records.run_folder import refuse
from groupwise.rewards import Rewards, build


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a run starts from, all checked."""

    loaded: LoadedConfig
    """The configuration."""
    rewards: Rewards
    """Every reward, imported."""
    evaluation: Rewards
    """What scores held-out responses: those of `evaluate.rewards`, or the same object as `rewards`."""
    train: list[Row]
    """Rows to train on."""
    held_out: list[Row]
    """Rows to evaluate on; empty for none."""
    notices: tuple[str, ...]
    """What is worth knowing of the rows, for people."""
    origin: Mapping[str, Any]
    """Where data and rewards came from, as keywords of `records.run_folder.fingerprints`."""
    estimate: Estimator
    """Advantage estimator with its settings."""
    objective: Objective
    """The loss."""
    aggregate: Callable[..., Any]
    """Token counts to weights."""
    outside: Callable[..., Any] | None
    """Where the surrogate's bounds bite; None for a surrogate without bounds."""
    clip_width: float | None
    """How far the ratio may move before a bound bites; None for a surrogate without bounds."""
    control_kl: Callable[..., Any]
    """The KL controller's rule with its settings."""
    prompts: Sequence[Prompt] | None = None
    """Encoded before, to be trained on in place of `train`, as when a step is replayed; None otherwise."""

    @property
    def config(self) -> RunConfig:
        """The configuration's values."""
        return self.loaded.config


def read_inputs(
    loaded: LoadedConfig,
    *,
    rewards: Sequence[Any] = (),
    weights: Sequence[float] | None = None,
    train: Sequence[Mapping[str, Any]] | None = None,
    held_out: Sequence[Mapping[str, Any]] | None = None,
) -> Inputs:
    """Import the rewards, read the data and check one against the other.

    Args:
        loaded: the configuration.
        rewards: reward functions given in Python, added to those of the configuration; see `rewards.setup.build`.
        weights: one per function of `rewards`.
        train: rows given in Python instead of `prompts.train`.
        held_out: rows given in Python instead of `prompts.held_out`.

    Raises:
        ConfigError, DataError, RewardError: one sentence naming the place and the remedy.
    """
    config, base = loaded.config, loaded.base
    if not config.rewards and not rewards:
        raise ConfigError(
            "rewards is empty, so there is nothing to learn from; name a scorer, for example [numeric]"
        )
    scorers = build(config.rewards, base=base, functions=rewards, weights=weights)
    data = read_data(loaded, train=train, held_out=held_out)
    evaluation = evaluation_rewards(config, base) or scorers
    for rows, judges in ((data.train, scorers), (data.held_out, evaluation)):
        if rows:
            check_rows(rows, config.prompts, longest_response=config.rollout.max_new_tokens)
            for source, own in by_source(rows).items():
                judges.check_rows([(row.place, row.columns) for row in own], source)
    _check_recipes(config, scorers, data.train)
    if ":" in config.rollout.engine:
        registry.import_function(config.rollout.engine, base=base)
    checked = without_repeats(data.train, data.held_out, config.prompts)
    return Inputs(
        loaded=loaded,
        rewards=scorers,
        evaluation=evaluation,
        train=checked.train,
        held_out=data.held_out,
        notices=checked.sentences,
        origin=data.origin(scorers.from_python),
        **objective_of(config, base),
    )


def refuse_early(loaded: LoadedConfig) -> None:
    """What loading the model and making the run's folder would refuse by name, told before torch is imported.

    Raises:
        ModelError: no such model or tokenizer.
        RunFolderError: the folder is not empty, or may not be written.
    """
    find_models(loaded.config.model, loaded.base)
    if (os.environ.get("WORLD_SIZE") or "1") == "1":  # of several processes the first makes the folder
        run = loaded.config.run
        refuse(Path(run.dir) if run.dir else None, overwrite=run.overwrite)


def _check_recipes(config: RunConfig, scorers: Rewards, train: Sequence[Row]) -> None:
    """What a recipe needs to know of the rewards and rows.

    Raises:
        ConfigError, DataError: it cannot; names the place and the remedy.
    """
    if config.prompts.curriculum is not None:
        for row in train:
            first_estimate(row.columns, row.place, config.prompts.curriculum)
    if config.prompts.curriculum is not None and scorers.normalises:
        raise ConfigError(
            "prompts.curriculum counts the responses that pass, but with rewards.normalise a total reward does not say "
            "which do; remove one of the two"
        )
    if config.rollout.max_redraws and scorers.normalises:
        raise ConfigError(
            "rollout.max_redraws scores a batch in several goes, over each of which rewards.normalise would normalise "
            "by itself; set rollout.max_redraws to 0, or remove normalise"
        )
    teaching = config.objective.teaching
    if teaching is not None and teaching.below is None and scorers.normalises:
        raise ConfigError(
            "objective.teaching takes an answer below evaluate.pass_reward for wrong, but with rewards.normalise a "
            "total reward does not say so; set objective.teaching.below"
        )
    chosen = config.objective.filter
    if chosen is not None and chosen.reward is not None and chosen.reward not in scorers.labels:
        near = registry.nearest(chosen.reward, scorers.labels)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(scorers.labels)}"
        raise ConfigError(f"objective.filter.reward: no reward has the label {chosen.reward!r}; {hint}")


def by_source(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each source, in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.source, []).append(row)
    return found


def evaluation_rewards(config: RunConfig, base: Path) -> Rewards | None:
    """The rewards of `evaluate.rewards`; None where held-out responses are scored as in training.

    Raises:
        ConfigError: as `rewards.setup.build`.
    """
    chosen = [each.in_training() for each in config.evaluate.rewards]
    return build(chosen, base=base, place="evaluate.rewards") if chosen else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The rows of a run as they were read; what their columns hold is not checked yet."""

    train: list[Row]
    """Rows to train on; at least one."""
    held_out: list[Row]
    """Rows to evaluate on; empty for none."""
    files: dict[str, Path]
    """The file of each source that is one, by the source's name."""
    made: dict[str, list[Row]]
    """The rows of each source that is no file, by its name."""
    given: dict[str, list[Row]]
    """The rows given in Python, by `train` and `held_out`."""

    def origin(self, python_rewards: Sequence[str] = ()) -> dict[str, Any]:
        """Where data and rewards came from, as keywords of `records.run_folder.fingerprints`.

        Args:
            python_rewards: labels of the rewards given in Python.
        """
        return {
            "data_files": self.files,
            "data_rows": {name: [row.columns for row in rows] for name, rows in self.made.items()},
            "python_rewards": python_rewards,
            "python_rows": {name: [row.columns for row in rows] for name, rows in self.given.items()},
        }


def read_data(
    loaded: LoadedConfig,
    *,
    train: Sequence[Mapping[str, Any]] | None = None,
    held_out: Sequence[Mapping[str, Any]] | None = None,
) -> Data:
    """The rows of `prompts.train` and `prompts.held_out`, or those given in Python in their place.

    Raises:
        ConfigError, DataError: one sentence naming the place and the remedy.
    """
    config, base = loaded.config, loaded.base
    checks_of(config.health, base=base)  # a wrong one is told before a model is loaded
    _refuse_overlap(config)
    read: dict[str, Read] = {}
    in_python: dict[str, list[Row]] = {}
    for key, given, sources in (
        ("train", train, config.prompts.train),
        ("held_out", held_out, config.prompts.held_out),
    ):
        if given is not None and sources:
            named = ", ".join(source.called for source in sources)
            raise ConfigError(f"prompts.{key} names {named}, and rows were given in Python as well; keep one")
        if given is not None:
            in_python[key] = rows_from(given, source=key)
            read[key] = Read(rows=in_python[key])
        else:
            read[key] = read_sources(sources, base)
    rows = {key: found.rows for key, found in read.items()}
    if config.evaluate.every_steps is not None and not rows["held_out"]:
        raise ConfigError("evaluate.every_steps is set, but there is no prompts.held_out to evaluate on")
    if not rows["train"]:
        raise ConfigError(
            "prompts.train is missing: name a source of prompts to train on, such as a JSONL file"
        )
    return Data(
        train=rows["train"],
        held_out=rows["held_out"],
        files=read["train"].files | read["held_out"].files,
        made=read["train"].made | read["held_out"].made,
        given=in_python,
    )


def _refuse_overlap(config: RunConfig) -> None:
    """One source twice is a slip, told before it is read; single rows that stand in both are looked for later."""
    trained = [_rows_named(source) for source in config.prompts.train]
    both = next((s for s in config.prompts.held_out if _rows_named(s) in trained), None)
    if both is not None:
        raise DataError(
            f"prompts.train and prompts.held_out are both {both.source}; held-out results mean something only on rows "
            "that are not trained on"
        )


def _rows_named(source: SourceConfig) -> SourceConfig:
    """A source without what does not decide its rows."""
    return source.model_copy(update={"name": None, "weight": None, "columns": {}})


def objective_of(config: RunConfig, base: Path) -> dict[str, Any]:
    """The functions of the section `objective` with their settings bound, under the names that `Inputs` has."""
    chosen = config.objective
    functions: dict[str, Any] = {}
    for key, package, choice in (
        ("advantage", ADVANTAGES, chosen.advantage),
        ("surrogate", SURROGATES, chosen.surrogate),
        ("aggregation", AGGREGATIONS, chosen.aggregation),
        ("kl.controller", KL_CONTROLLERS, chosen.kl.controller),
    ):
        function = registry.find(package, choice.name, base=base)
        try:
            settings = check_settings(function, choice.settings)
        except ValueError as error:
            raise ConfigError(f"objective.{key}: {error}") from None
        if key == "advantage":
            functions[key] = Estimator(function, settings)
            if "values" not in functions[key].needs and config.critic != CriticConfig():
                raise ConfigError(
                    f"critic is set, but the advantage {choice.name} asks for no values, so there is none; remove it"
                )
            if "values" in functions[key].needs and config.distributed.strategy != "ddp":
                raise ConfigError(
                    f"distributed.strategy is {config.distributed.strategy}, but the advantage {choice.name} asks for "
                    "a critic, whose weights are not divided; set distributed.strategy to ddp, or take another "
                    "advantage"
                )
            continue
        functions[key] = registry.bind(function, settings)
        if key == "surrogate":
            outside, width = (_beside(function, name, settings) for name in ("outside", "width"))
            functions |= {"outside": outside, "clip_width": None if width is None else width()}
    return {
        "estimate": functions["advantage"],
        "aggregate": functions["aggregation"],
        "outside": functions["outside"],
        "clip_width": functions["clip_width"],
        "control_kl": functions["kl.controller"],
        "objective": Objective(
            log_ratio=RATIOS[chosen.ratio],
            surrogate=functions["surrogate"],
            kl=KL_ESTIMATORS[chosen.kl.estimator],
            beta=chosen.kl.beta if chosen.kl.place == "loss" else 0.0,
            kl_cap_token=chosen.kl.cap_token,
            kl_cap_rollout=chosen.kl.cap_rollout,
            entropy_bonus=chosen.entropy_bonus,
        ),
    }


def _beside(function: Callable[..., Any], name: str, chosen: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Another function of the same module, with those of the settings that it has; None when it is not there."""
    other = vars(sys.modules[function.__module__]).get(name)
    if other is None:
        return None
    return functools.partial(other, **{key: chosen[key] for key in registry.settings(other)})
