"""A model measured on held-out prompts, outside a run."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.config import LoadedConfig
from groupwise.errors import ConfigError
from groupwise.evaluate.run import evaluate
from groupwise.health.metric import values
from groupwise.prompts.load import check_rows, read_rows
from groupwise.prompts.sources import read_sources
from groupwise.records import Group
from groupwise.registry import file_of
from groupwise.rewards import build
from groupwise.workbench.trial import load_trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The result of `evaluate_model`."""

    model: str
    """What was measured."""
    data: str
    """On what."""
    temperature: float
    """0 for greedy."""
    groups: list[Group]
    """Every response with its verdict."""
    metrics: dict[str, float]
    """`eval/...` as in docs/records.md."""
    pass_reward: float
    """The total reward from which on a response passes."""
    notes: list[str]
    """What is worth knowing of the rows, such as how many were left out; see `Trial.notes`."""

    def lines(self) -> list[str]:
        """The numbers for people."""
        samples = len(self.groups[0].rollouts_G)
        manner = "greedy" if self.temperature == 0 else f"{samples} at temperature {self.temperature:g}"
        prompts = f"{len(self.groups)} prompt{'s' if len(self.groups) > 1 else ''}"
        rows = [
            ("model", self.model),
            ("data", f"{self.data}: {prompts}, {manner}"),
            *(("note", note) for note in self.notes),
            (
                "pass@1",
                f"{self.metrics['eval/pass@1']:.1%}{self._error()}, reward {self.pass_reward:g} passes",
            ),
        ]
        if "eval/reward_mean" in self.metrics:
            rows.append(("mean reward", f"{self.metrics['eval/reward_mean']:.4f}"))
        rows += [(f"  {label}", f"{value:.4f}") for label, value in self._parts().items()]
        absent = sum(v.reward is None for group in self.groups for v in group.verdicts_G)
        if absent:
            rows.append(
                ("no reward", f"{absent} of {len(self.groups) * samples} responses; they do not pass")
            )
        cut = self.metrics["eval/truncated_fraction"]
        rows.append(("mean length", f"{self.metrics['eval/length_mean']:.1f} tokens, {cut:.1%} cut off"))
        width = max(len(name) for name, _ in rows)
        return [f"{name:<{width}}  {value}" for name, value in rows]

    def json(self) -> str:
        """The numbers and every response as JSON text."""
        return (
            json.dumps(
                {
                    "model": self.model,
                    "data": self.data,
                    "temperature": self.temperature,
                    "pass_reward": self.pass_reward,
                    "notes": self.notes,
                    "metrics": {k: v if math.isfinite(v) else None for k, v in self.metrics.items()},
                    "prompts": [_of_group(group) for group in self.groups],
                },
                ensure_ascii=False,
                indent=1,
                allow_nan=False,
            )
            + "\n"
        )

    def _error(self) -> str:
        """The standard error of pass@1 over prompts, which are what was drawn: sample std over root of their number."""
        count = len(self.groups)
        if count < 2:
            return ""
        rates = [
            sum(v.reward is not None and v.reward >= self.pass_reward - 1e-9 for v in group.verdicts_G)
            / len(group.verdicts_G)
            for group in self.groups
        ]
        mean = sum(rates) / count
        variance = sum((rate - mean) ** 2 for rate in rates) / (count - 1)
        return f" +- {math.sqrt(variance / count):.1%} (standard error)"

    def _parts(self) -> dict[str, float]:
        said: dict[str, list[float]] = {}
        for group in self.groups:
            for verdict in group.verdicts_G:
                for label, value in verdict.parts.items():
                    said.setdefault(label, []).extend([] if value is None else [value])
        return {label: sum(part) / len(part) for label, part in said.items() if part} if len(said) > 1 else {}


def _of_group(group: Group) -> dict[str, Any]:
    return {
        "id": group.prompt.id,
        "prompt": group.prompt.text,
        "responses": [
            {
                "text": rollout.text,
                "tokens": len(rollout.token_ids_T),
                "stop_reason": rollout.stop_reason.value,
                "reward": verdict.reward,
                "parts": dict(verdict.parts),
                "failure": verdict.failure,
            }
            for rollout, verdict in zip(group.rollouts_G, group.verdicts_G, strict=True)
        ],
    }


def files_read(source: str, loaded: LoadedConfig, data: Path | None = None) -> list[Path]:
    """The user's files that an evaluation reads or that its configuration names, the model's aside.

    Args:
        source: the configuration file or run folder that was named.
        loaded: what is configured there.
        data: as in `evaluate_model`.
    """
    config, base = loaded.config, loaded.base
    named = [source.source for source in (*config.prompts.held_out, *config.prompts.train)]
    rewards = [file_of(reward.name, base=base) for reward in config.rewards]
    path = Path(source)
    return [
        path / "config.yaml" if path.is_dir() else path,
        *([] if data is None else [data]),
        *(base / name for name in named),
        *(file for file in rewards if file is not None),
    ]


def evaluate_model(loaded: LoadedConfig, data: Path | None = None) -> Measured:
    """Sample every held-out prompt and score the responses with the configuration's rewards.

    Args:
        loaded: says which model, rewards and data, and how to sample.
        data: a JSONL file instead of `prompts.held_out`.

    Raises:
        GroupwiseError: one sentence naming the place and the remedy.
    """
    config, base = loaded.config, loaded.base
    if not config.rewards:
        raise ConfigError(
            "rewards is empty, so there is nothing to measure by; name a scorer, for example [numeric]"
        )
    rewards = build(config.rewards, base=base)
    if data is not None:
        rows = read_rows(data, source=str(data))
    elif config.prompts.held_out:
        rows = read_sources(config.prompts.held_out, base).rows
    else:
        raise ConfigError(
            "prompts.held_out is missing, so there is nothing to evaluate on; name a file with --data"
        )
    check_rows(rows, config.prompts)
    rows = rows[: config.evaluate.prompts]
    rewards.check_rows([(row.place, row.columns) for row in rows], rows[0].source)
    new_tokens = config.evaluate.max_new_tokens or config.rollout.max_new_tokens
    trial = load_trial(loaded, rows, new_tokens=new_tokens)
    found = evaluate(
        trial.engine,
        trial.prompts,
        rewards.score,
        config.evaluate,
        config.rollout,
        seed=(config.run.seed, -1),
    )
    return Measured(
        model=config.model.name,
        data=rows[0].source,
        temperature=config.evaluate.temperature,
        groups=found.groups,
        metrics=values(found.metrics),
        pass_reward=config.evaluate.pass_reward,
        notes=trial.notes,
    )
