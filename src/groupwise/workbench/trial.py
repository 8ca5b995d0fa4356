"""A model as it is, loaded to be sampled from and scored but not trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.config import LoadedConfig, load
from groupwise.config.prompts import FILE_ENDINGS
from groupwise.errors import ConfigError, RunFolderError
from groupwise.model.find import find_model

if TYPE_CHECKING:
    from groupwise.model.load import Policy
    from groupwise.prompts.load import Row
    from groupwise.records import Prompt
    from groupwise.rollouts.in_process import InProcessEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A model with its engine, and the prompts to try it on."""

    policy: Policy
    """The model and its tokenizer."""
    engine: InProcessEngine
    """Samples from it."""
    prompts: list[Prompt]
    """Encoded for it."""
    notes: list[str]
    """What is worth knowing of the rows, for people: how many were left out or cut and the like; mostly nothing."""


def open_source(
    source: str, overrides: Sequence[str] = (), *, model: str | None = None, bare: bool = False
) -> LoadedConfig:
    """The configuration of a file or of a run folder, with the model that is meant.

    A run folder means the model that it trained; `model` replaces whatever is configured, and may be a run folder too.
    Either comes with its own tokenizer, and without an adapter: a trained one is merged into the saved model.

    Args:
        source: a configuration file, or a run folder.
        overrides: `key=value` on top.
        model: a model folder, a run folder, a .gguf file or a hub id, relative to the working folder.
        bare: `source` may be a model as well, as `model` would be; everything else is then at its default.

    Raises:
        ConfigError: the configuration is wrong or not there.
        RunFolderError: a folder that holds no run, or a run without a saved model.
    """
    path = Path(source)
    folder = path if path.is_dir() else None
    if bare and _is_model(path):
        find_model(
            _model_name(source), Path.cwd(), key="model"
        )  # a mistyped run folder is told as what it is
        return load({"model": {"name": _model_name(source)}}, overrides)
    if folder is not None and not (folder / "config.yaml").is_file():
        what = "a model, but no configuration" if (folder / "config.json").is_file() else "no config.yaml"
        remedy = f"name a configuration and give the folder with --model {source}"
        raise RunFolderError(f"{source} holds {what}, so it is not a run folder; {remedy}")
    if folder is None and path.suffix.lower() in FILE_ENDINGS and path.suffix.lower() != ".json":
        raise ConfigError(
            f"{source} is a file of rows by its name; name a configuration, a run folder or a model, and these rows as "
            "its prompts (--data, or prompts.held_out)"
        )
    file = path if folder is None else folder / "config.yaml"
    if model is None and folder is not None:
        if not (folder / "model" / "config.json").is_file():
            raise RunFolderError(
                f"{source} has no trained model in model/: the run did not end, or run.save_model was false; go on "
                f"with `groupwise train --resume {source}`, or evaluate its config.yaml with another --model"
            )
        model = str(folder)
    if model is None:
        return _with_rollouts(load(file, overrides), source)
    return _with_rollouts(load(file, [*model_words(model), *overrides]), source)


def _is_model(path: Path) -> bool:
    """A model's folder or file, or a name that can only be a model's."""
    if path.is_dir():
        return (path / "config.json").is_file() and not (path / "config.yaml").is_file()
    return path.suffix.lower() == ".gguf" or (not path.exists() and path.suffix not in (".yaml", ".yml"))


def model_words(model: str) -> list[str]:
    """The `key=value` words that put a model in the place of the configured one, with its own tokenizer and no adapter.

    Args:
        model: as `open_source` takes it.
    """
    return [
        f"model.name={_quoted(_model_name(model))}",
        "lora=null",
        "model.tokenizer=null",
        "model.revision=null",
    ]


def _with_rollouts(loaded: LoadedConfig, source: str) -> LoadedConfig:
    if loaded.config.method != "rl":
        raise ConfigError(
            f"{source} is of method {loaded.config.method}, which has no rewards and samples nothing; name a "
            "configuration that has them, and this run's model with --model"
        )
    return loaded


def _model_name(model: str) -> str:
    folder = Path(model)
    if (folder / "model" / "config.json").is_file():
        folder = folder / "model"
    return str(folder.absolute()) if folder.exists() else model


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def load_trial(loaded: LoadedConfig, rows: Sequence[Row], *, new_tokens: int) -> Trial:
    """Load the model and encode the rows for it.

    Args:
        loaded: the configuration.
        rows: prompts and their columns.
        new_tokens: how long a response may become.

    Raises:
        ModelError, DataError, ConfigError: names the place and the remedy.
    """
    from groupwise.model.load import load_policy
    from groupwise.model.logprobs import TokenLogprobs
    from groupwise.prompts.encode import encode, prompt_limit
    from groupwise.rollouts.in_process import InProcessEngine

    config, base = loaded.config, loaded.base
    policy = load_policy(
        config.model,
        lora=config.lora,
        stop_tokens=config.rollout.stop_tokens,
        base=base,
        seed=config.run.seed,
        memory=config.memory,
    )
    limit = prompt_limit(
        config.prompts, context_tokens=policy.context_tokens, new_tokens=new_tokens, model=policy.name
    )
    prompts, report = encode(rows, config.prompts, policy.tokenizer, limit_tokens=limit)
    longest = max(len(prompt.token_ids) for prompt in prompts) + new_tokens
    scorer = TokenLogprobs(policy.model, longest_tokens=longest, precision=policy.precision, flex=policy.flex)
    return Trial(
        policy=policy,
        engine=InProcessEngine(
            policy,
            scorer,
            cache_megabytes=config.rollout.cache_megabytes,
            pack_weights=config.rollout.pack_weights,
        ),
        prompts=prompts,
        notes=report.sentences()[1:],
    )
