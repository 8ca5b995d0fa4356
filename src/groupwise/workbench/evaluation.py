"""A model measured on held-out prompts, outside a run."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.config import LoadedConfig, load
from groupwise.config.prompts import SourceConfig
from groupwise.errors import ConfigError
from groupwise.evaluate import majority, text_metrics
from groupwise.evaluate.baselines import Baseline, baselines
from groupwise.evaluate.intervals import Estimate, share_interval
from groupwise.evaluate.pass_at_k import pass_at
from groupwise.evaluate.run import evaluate, passes
from groupwise.health.metric import values
from groupwise.model.find import find_models
from groupwise.prompts.encode import columns_for_rewards
from groupwise.prompts.load import Row, check_rows
from groupwise.prompts.sources import read_sources
from groupwise.records import Group, Prompt, Rollout, Verdict
from groupwise.registry import file_of
from groupwise.rewards import Rewards, build
from groupwise.training.inputs import by_source, evaluation_rewards
from groupwise.workbench.trial import Trial, load_trial

if TYPE_CHECKING:
    from groupwise.config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be measured beside what passes."""

    reference: str | None = None
    """The column to measure BLEU and ROUGE against; None for neither."""
    diversity: bool = False
    """distinct-1, distinct-2 and self-BLEU."""
    base: LoadedConfig | None = None
    """Whose model perplexity is taken under; None for no perplexity."""
    blind: bool = False
    """What answers get that ignore the question."""

    @property
    def text(self) -> bool:
        """Whether something is measured that needs no rewards."""
        return self.reference is not None or self.diversity or self.base is not None


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
    k: tuple[int, ...] = (1,)
    """pass@k for these."""
    judged_by: tuple[str, ...] = ()
    """Labels of the rewards; empty where nothing was scored."""
    text: dict[str, float] = field(default_factory=dict)
    """BLEU, ROUGE, diversity and perplexity, as far as they were wanted."""
    blind: list[Baseline] = field(default_factory=list)
    """What answers get that ignore the question, the best first."""

    def shares(self) -> dict[str, Estimate]:
        """What passes, by name, each with its 95 % interval over prompts."""
        if not self.judged_by:
            return {}
        passed_PG = [[passes(v, self.pass_reward) for v in g.verdicts_G] for g in self.groups]
        found = {f"pass@{k}": pass_at(passed_PG, k) for k in self.k}
        samples = len(passed_PG[0])
        if samples > 2:
            votes = [
                majority.vote(majority.answers_of(g), p) for g, p in zip(self.groups, passed_PG, strict=True)
            ]
            found[f"majority@{samples}"] = share_interval(votes)
        greedy = [passes(g.greedy.verdict, self.pass_reward) for g in self.groups if g.greedy is not None]
        if greedy:
            found["greedy pass@1"] = share_interval([float(passed) for passed in greedy])
        return found

    def lines(self) -> list[str]:
        """The numbers for people."""
        samples = len(self.groups[0].rollouts_G)
        manner = "greedy" if self.temperature == 0 else f"{samples} at temperature {self.temperature:g}"
        prompts = f"{len(self.groups)} prompt{'s' if len(self.groups) > 1 else ''}"
        rows = [
            ("model", self.model),
            ("data", f"{self.data}: {prompts}, {manner}"),
            *(("note", note) for note in self.notes),
        ]
        shares = self.shares()
        if shares:
            rows.append(
                ("passes", f"a reward of {self.pass_reward:g} or more, by {', '.join(self.judged_by)}")
            )
        rows += [(name, each.text()) for name, each in shares.items()]
        rows += [(f"  {each.name}", each.passes.text()) for each in self.blind]
        if self.blind:
            rows.append(("note", self._against_blind(shares["pass@1"])))
        if "eval/reward_mean" in self.metrics:
            rows.append(("mean reward", f"{self.metrics['eval/reward_mean']:.4f}"))
        rows += [(f"  {label}", f"{value:.4f}") for label, value in self._parts().items()]
        absent = sum(v.reward is None for group in self.groups for v in group.verdicts_G)
        if absent and self.judged_by:
            rows.append(
                ("no reward", f"{absent} of {len(self.groups) * samples} responses; they do not pass")
            )
        cut = self.metrics["eval/truncated_fraction"]
        rows.append(("mean length", f"{self.metrics['eval/length_mean']:.1f} tokens, {cut:.1%} cut off"))
        rows += [(name.replace("_", "-"), f"{value:.4f}") for name, value in self.text.items()]
        width = max(len(name) for name, _ in rows)
        return [f"{name:<{width}}  {value}" for name, value in rows]

    def json(self) -> str:
        """The numbers and every response as JSON text."""
        metrics = self.metrics if self.judged_by else {}
        return (
            json.dumps(
                {
                    "model": self.model,
                    "data": self.data,
                    "temperature": self.temperature,
                    "pass_reward": self.pass_reward,
                    "judged_by": list(self.judged_by),
                    "notes": self.notes,
                    "metrics": {k: v if math.isfinite(v) else None for k, v in metrics.items()},
                    "shares": {name: each.data() for name, each in self.shares().items()},
                    "text": {k: v if math.isfinite(v) else None for k, v in self.text.items()},
                    "blind": {each.name: each.passes.data() for each in self.blind},
                    "prompts": [_of_group(group) for group in self.groups],
                },
                ensure_ascii=False,
                indent=1,
                allow_nan=False,
            )
            + "\n"
        )

    def _against_blind(self, passed: Estimate) -> str:
        best = self.blind[0]
        if passed.low > best.passes.value:
            return f"pass@1 is above what answering {best.name} gets, {best.passes.value:.1%}"
        return (
            f"answering {best.name} passes {best.passes.value:.1%} without reading the question, which is within or "
            "above the interval of pass@1; the model shows no more than that here"
        )

    def _parts(self) -> dict[str, float]:
        said: dict[str, list[float]] = {}
        for group in self.groups:
            for verdict in group.verdicts_G:
                for label, value in verdict.parts.items():
                    said.setdefault(label, []).extend([] if value is None else [value])
        return {label: sum(part) / len(part) for label, part in said.items() if part} if len(said) > 1 else {}


def _of_group(group: Group) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": group.prompt.id,
        "prompt": group.prompt.text,
        "messages": None if group.prompt.messages is None else [dict(each) for each in group.prompt.messages],
        "responses": [
            _of_rollout(rollout, verdict)
            for rollout, verdict in zip(group.rollouts_G, group.verdicts_G, strict=True)
        ],
    }
    if group.greedy is not None:
        found["greedy"] = _of_rollout(group.greedy.rollout, group.greedy.verdict)
    return found


def _of_rollout(rollout: Rollout, verdict: Verdict) -> dict[str, Any]:
    return {
        "text": rollout.text,
        "tokens": len(rollout.token_ids_T),
        "stop_reason": rollout.stop_reason.value,
        "reward": verdict.reward,
        "parts": dict(verdict.parts),
        "failure": verdict.failure,
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
    rewards = [file_of(reward.name, base=base) for reward in (*config.rewards, *config.evaluate.rewards)]
    path = Path(source)
    return [
        path / "config.yaml" if path.is_dir() else path,
        *([] if data is None else [data]),
        *(base / name for name in named),
        *(file for file in rewards if file is not None),
    ]


def sampling_words(
    config: RunConfig, k: Sequence[int], *, samples: int | None, temperature: float | None
) -> list[str]:
    """The `key=value` words that ask for pass@k: enough samples, a temperature above 0, and a greedy response beside.

    Args:
        config: without these words; its evaluation temperature is kept, or that of training where it is greedy.
        k: as wanted; empty for what is configured.
        samples: as wanted; None for the largest k.
        temperature: as wanted; None for the configured one.
    """
    words = [] if temperature is None else [f"evaluate.temperature={temperature}"]
    words += [] if samples is None else [f"evaluate.samples={samples}"]
    if not k:
        return words
    words.append(f"evaluate.k={list(k)}")
    if max(k) > 1:
        if samples is None:
            words.append(f"evaluate.samples={max(max(k), config.evaluate.samples)}")
        if temperature is None and config.evaluate.temperature == 0:
            words.append(f"evaluate.temperature={config.rollout.temperature}")
        words.append("evaluate.greedy=true")
    return words


def base_of(source: str, loaded: LoadedConfig) -> LoadedConfig:
    """The configuration of the model that training began from: the run's, the file's, or the model alone.

    Args:
        source: the configuration file, run folder or model that was named.
        loaded: what `open_source` made of it.
    """
    path = Path(source)
    file = path / "config.yaml" if path.is_dir() else path
    return load(file) if file.suffix in (".yaml", ".yml") and file.is_file() else loaded


def evaluate_model(loaded: LoadedConfig, data: Path | None = None, wanted: Wanted | None = None) -> Measured:
    """Sample every held-out prompt and score the responses, by `evaluate.rewards` or else the training rewards.

    Args:
        loaded: says which model, rewards and data, and how to sample.
        data: a source of rows instead of `prompts.held_out`: a file, or another one by its name.
        wanted: what else is measured.

    Raises:
        GroupwiseError: one sentence naming the place and the remedy.
    """
    config, wanted = loaded.config, wanted or Wanted()
    rewards = _rewards(loaded, wanted)
    rows = _rows(loaded, data)
    if rewards is not None:
        for source, own in by_source(rows).items():
            rewards.check_rows([(row.place, row.columns) for row in own], source)
    if wanted.reference is not None:
        columns_N = columns_for_rewards(rows, config.prompts)
        text_metrics.references_in(
            [(row.place, columns) for row, columns in zip(rows, columns_N, strict=True)], wanted.reference
        )
    for each in [loaded] if wanted.base is None else [loaded, wanted.base]:
        find_models(each.config.model, each.base)  # a slip is told before torch is imported
    new_tokens = config.evaluate.max_new_tokens or config.rollout.max_new_tokens
    trial = load_trial(loaded, rows, new_tokens=new_tokens)
    if wanted.base is not None:
        _refuse_other_tokens(wanted.base, trial)
    found = evaluate(
        trial.engine,
        trial.prompts,
        _unscored if rewards is None else rewards.score,
        config.evaluate,
        config.rollout,
        seed=(config.run.seed, -1),
    )
    blind: list[Baseline] = []
    if wanted.blind and rewards is not None:
        blind = baselines(trial.prompts, rewards, pass_reward=config.evaluate.pass_reward)
    return Measured(
        model=config.model.name,
        data=", ".join(by_source(rows)),
        temperature=config.evaluate.temperature,
        groups=found.groups,
        metrics=values(found.metrics),
        pass_reward=config.evaluate.pass_reward,
        notes=trial.notes,
        k=config.evaluate.k,
        judged_by=() if rewards is None else tuple(label for label, _ in rewards.weighted),
        text=_text(found.groups, wanted, trial, new_tokens),
        blind=blind,
    )


def _rewards(loaded: LoadedConfig, wanted: Wanted) -> Rewards | None:
    rewards = evaluation_rewards(loaded.config, loaded.base)
    if rewards is not None:
        return rewards
    if loaded.config.rewards:
        return build(loaded.config.rewards, base=loaded.base)
    if wanted.text and not wanted.blind:
        return None
    raise ConfigError(
        "rewards is empty, so there is nothing to measure by; name a scorer, for example rewards=[numeric], or ask for "
        "--reference, --diversity or --perplexity alone"
    )


def _rows(loaded: LoadedConfig, data: Path | None) -> list[Row]:
    config = loaded.config
    if data is not None:
        rows = read_sources([SourceConfig(source=str(data))], Path.cwd()).rows
    elif config.prompts.held_out:
        rows = read_sources(config.prompts.held_out, loaded.base).rows
    else:
        raise ConfigError(
            "prompts.held_out is missing, so there is nothing to evaluate on; name a file with --data"
        )
    check_rows(rows, config.prompts)
    return rows[: config.evaluate.prompts]


def _unscored(prompts: Sequence[Prompt], rollouts: Sequence[Rollout]) -> list[Verdict]:
    return [Verdict(reward=None, parts={}, failure="nothing is scored") for _ in rollouts]


def _text(groups: list[Group], wanted: Wanted, trial: Trial, new_tokens: int) -> dict[str, float]:
    found: dict[str, float] = {}
    if wanted.reference is not None:
        found |= text_metrics.overlap(groups, wanted.reference)
    if wanted.diversity:
        found |= text_metrics.diversity(groups)
    if wanted.base is not None:
        found["perplexity_under_base"] = _perplexity(groups, wanted.base, trial, new_tokens)
    return found


def _refuse_other_tokens(base: LoadedConfig, trial: Trial) -> None:
    """Perplexity is of the same tokens, which is known before anything is sampled."""
    from groupwise.model.load import load_tokenizer

    model = base.config.model
    if load_tokenizer(model, base=base.base).get_vocab() != trial.policy.tokenizer.get_vocab():
        raise ConfigError(
            f"perplexity under {model.name} cannot be taken, since it reads other tokens than {trial.policy.name}; "
            "leave --perplexity out, or name the run that trained this model"
        )


def _perplexity(groups: list[Group], base: LoadedConfig, trial: Trial, new_tokens: int) -> float:
    from groupwise.model.load import load_policy
    from groupwise.model.logprobs import TokenLogprobs

    config = base.config
    policy = load_policy(
        config.model, lora=None, stop_tokens=config.rollout.stop_tokens, base=base.base, seed=config.run.seed
    )
    longest = max(len(group.prompt.token_ids) for group in groups) + new_tokens
    scorer = TokenLogprobs(policy.model, longest_tokens=longest, precision=policy.precision, flex=policy.flex)
    return text_metrics.perplexity(groups, scorer, limit_tokens=config.training.micro_batch_tokens)
