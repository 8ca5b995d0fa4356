"""Puts the parts of a run together: model, reference, engine, optimiser, prompts, records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from groupwise.checkpoint.randomness import ProcessRandomness
from groupwise.checkpoint.state import Stateful
from groupwise.config import RunConfig
from groupwise.config.combinations import warnings
from groupwise.evaluate.run import Evaluation, evaluate
from groupwise.health.actions import Actions
from groupwise.health.metric import Largest, Mean, Metric
from groupwise.model.checkpointing import checkpoint_layers
from groupwise.model.load import Policy, load_policy
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.recorded import RecordedLayers
from groupwise.model.reference import Reference, build_reference, dropped_out
from groupwise.prompts.curriculum import Curriculum
from groupwise.prompts.encode import encode, prompt_limit
from groupwise.prompts.order import PromptOrder
from groupwise.records import Prompt, Rollout, Verdict
from groupwise.records.run_folder import RunFolder, refuse
from groupwise.rollouts.engine import Engine, Sampling
from groupwise.training.advantages import penalised
from groupwise.training.ahead import Ahead
from groupwise.training.batch import Row as BatchRow
from groupwise.training.critic import ValueTrainer, value_trainer
from groupwise.training.distributed import ALONE, Ranks, join
from groupwise.training.forward import Forward
from groupwise.training.inputs import Inputs
from groupwise.training.keeper import Keeper
from groupwise.training.logprobs import corrector, old_is_sampler
from groupwise.training.opening import open_recorder
from groupwise.training.ordering import curriculum_of, order_of, steps_of
from groupwise.training.probe import ReferenceProbe
from groupwise.training.recorder import Recorder
from groupwise.training.resume import Resumed, take_up
from groupwise.training.schedules import KLController, Temperature
from groupwise.training.serving import engine_of
from groupwise.training.sharing import optimizer_of, share_model
from groupwise.training.step import Updater
from groupwise.training.transfer import handed_over, transfer_of
from groupwise.training.weights import Optimizer, learning_rate

_ROUNDING_PROMPTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The parts of a run, ready to train."""

    inputs: Inputs
    """Configuration, rewards and objective."""
    policy: Policy
    """What is trained."""
    engine: Engine
    """What samples."""
    sampling: Sampling
    """How."""
    prompts: list[Prompt]
    """To train on."""
    held_out: list[Prompt]
    """To evaluate on."""
    order: PromptOrder
    """Which prompts make each batch."""
    curriculum: Curriculum | None
    """Which of them are ready; None for all."""
    steps: int
    """Batches in the run."""
    at_start: dict[str, Metric]
    """Measured before the first step; recorded with it."""
    updater: Updater
    """Changes the policy."""
    optimizer: Optimizer
    """Its weights and rate."""
    old_forward: Forward | None
    """Scores the old log-probs; None when the sampler's serve."""
    reference_forward: Forward | None
    """Scores the reference's; None without a reference."""
    reference_weights: Callable[[], AbstractContextManager[None]] | None
    """Context with the reference's weights; None without a reference."""
    probe: ReferenceProbe
    """Whether the reference is still what it was."""
    kl: KLController
    """The KL coefficient from step to step."""
    temperature: Temperature
    """The sampling temperature from step to step."""
    critic: ValueTrainer | None
    """Expects the reward still to come and learns to; None where the advantage asks for no values."""
    recorder: Recorder
    """Writes the records."""
    keeper: Keeper
    """Where the run stands, and its checkpoints."""
    ranks: Ranks
    """Who train together."""
    ahead: Ahead = field(default_factory=Ahead)
    """The next batch, where it is drawn while this one is trained."""

    @property
    def config(self) -> RunConfig:
        """The configuration's values."""
        return self.inputs.config

    @property
    def folder(self) -> RunFolder:
        """Where everything is written."""
        return self.recorder.folder

    @property
    def parts(self) -> dict[str, Stateful]:
        """Everything that decides the future beside the weights, by its name in a checkpoint.

        A part with a memory of its own gets a line here. Rewards of evaluation alone have none that training knows of,
        and may be others when the run is gone on with. The recorder is the last, since it removes what was written
        after the checkpoint, which no other part may object to any more.
        """
        parts: dict[str, Stateful] = {
            "keeper": self.keeper,
            "order": self.order,
            **({} if self.curriculum is None else {"curriculum": self.curriculum}),
            "optimizer": self.optimizer,
            "updates": self.updater.guard,
            **({} if self.critic is None else {"critic": self.critic}),
            "rewards": self.inputs.rewards,
            "kl": self.kl,
            "probe": self.probe,
            "temperature": self.temperature,
            "randomness": ProcessRandomness(),
            "health": self.recorder.watch,
            "actions": self.actions,
            "recorder": self.recorder,
        }
        return self.ahead.as_before(parts)

    @property
    def actions(self) -> Actions:
        """What findings have made of the settings."""
        return self.recorder.watch.actions

    @property
    def note_ids(self) -> NDArray[np.int32]:
        """Ids of `objective.teaching.text`, without special tokens around it; none without a text."""
        return _note(self.config, self.policy)

    @property
    def pass_reward(self) -> float | None:
        """Total reward from which on a rollout is right; None where training rewards are on another scale."""
        alike = self._judged_alike and not self.inputs.rewards.normalises
        return self.config.evaluate.pass_reward if alike else None

    @property
    def _judged_alike(self) -> bool:
        """True when held-out responses are scored by the training rewards."""
        return self.inputs.evaluation is self.inputs.rewards

    def reference_at(self, step: int) -> Callable[[], AbstractContextManager[None]] | None:
        """`reference_weights`, in a step from 1 with what `objective.kl.reference_dropout` drops."""
        share, forward = self.config.objective.kl.reference_dropout, self.reference_forward
        if not share or forward is None or self.reference_weights is None:
            return self.reference_weights
        seed = (self.config.run.seed, step)
        return functools.partial(dropped_out, self.reference_weights, forward.scorer.backbone, share, seed)

    def begin(self, step: int) -> None:
        """Move on what changes by rule before a step is sampled, 0 for the first: temperature and KL coefficient."""
        self.temperature.begin(step, factor=self.actions.factor("temperature"))
        self.kl.begin(step, factor=self.actions.factor("beta"))

    def apply(self, step: int) -> None:
        """Set the learning rate and the KL coefficient of a step for its updates, also of one that is gone on with."""
        rate = learning_rate(self.config.training, step, self.steps)
        self.optimizer.set_rate(rate * self.actions.factor("learning_rate"))
        if self.critic is not None:
            self.critic.begin(step)
        if self.updater.kl_in_loss:
            self.updater.objective = replace(self.updater.objective, beta=self.kl.beta)

    @contextmanager
    def sampling_of_a_step(self) -> Iterator[None]:
        """Within it the batch of a step is sampled: what the layers give serves the first update, where that is wanted
        and possible, and copies of weights that the rounds share are let go at the end."""
        scorer = self.updater.forward.scorer
        with nullcontext() if scorer.recorded is None else scorer.recorded.record():
            yield
        scorer.sampling_weights.let_go()

    def update(self, rows: Sequence[BatchRow], step: int, *, first: bool) -> dict[str, Metric]:
        """One update of everything that learns: the critic where there is one, then the policy.

        Args:
            rows: one optimiser batch.
            step: 1 for the first.
            first: see `Updater.update`.

        Raises:
            TrainingError: the loss or gradient was not finite `max_bad_steps` times in a row.
        """
        learned: dict[str, Metric] = {}
        if self.critic is not None:
            learned = self.critic.update(rows)
            if self.critic.alone(step):
                return learned
        return learned | self.updater.update(rows, first=first)

    def score(
        self, step: int, *, training: bool = True
    ) -> Callable[[Sequence[Prompt], Sequence[Rollout]], list[Verdict]]:
        """The rewards of training or of evaluation, told which step it is."""

        def scored(prompts: Sequence[Prompt], rollouts: Sequence[Rollout]) -> list[Verdict]:
            rewards = self.inputs.rewards if training else self.inputs.evaluation
            verdicts = self.ranks.from_first(
                lambda: rewards.score(prompts, rollouts, step=step, max_steps=self.steps, training=training)
            )
            if not training:
                return verdicts
            longest = self.config.rollout.max_new_tokens
            limits = [min(longest, prompt.max_new_tokens or longest) for prompt in prompts]
            return penalised(verdicts, rollouts, self.config.objective, limits=limits)

        return scored

    def evaluate(self, step: int) -> Evaluation:
        """Held-out evaluation with the weights as they are."""
        config = self.config
        return evaluate(
            self.engine,
            self.held_out,
            self.score(step, training=False),
            config.evaluate,
            config.rollout,
            seed=(config.run.seed, -1),
        )


def assemble(inputs: Inputs, *, console: Console | None = None, resumed: Resumed | None = None) -> Run:
    """Load the model and build every part.

    Args:
        inputs: configuration, data and rewards.
        console: where people are told; the terminal by default.
        resumed: the run that is gone on with; None for a new one.

    Raises:
        GroupwiseError: of whichever part cannot be built; one sentence with the remedy.
    """
    config = inputs.config
    ranks = join(config.distributed)
    if resumed is None:
        given = Path(config.run.dir) if config.run.dir else None
        ranks.from_first(lambda: refuse(given, overwrite=config.run.overwrite))
    transfer, policy = transfer_of(config, ranks), _policy(inputs)  # in this order
    prompts, held_out, notices = _prompts(inputs, policy)
    longest = max(len(p.token_ids) for p in (*prompts, *held_out)) + _new_tokens(config, policy)
    scorer = scorer_of(policy, config, longest_tokens=longest)
    notices += warnings(config).values()
    notices += [introduced(policy, scorer), *ranks.introduced(policy.device), *handed_over(config, transfer)]
    at_start = _rounding(scorer, prompts, notices) | {"training/weights_millions": Mean(policy.millions, 1)}
    engine = engine_of(config, policy, scorer, ranks, base=inputs.loaded.base, transfer=transfer)
    order = order_of(config, [prompt.source for prompt in prompts], config.rollout.prompts_per_step)
    steps = steps_of(config, order)
    temperature = Temperature(config.rollout)
    forward = forward_of(scorer, config, temperature, ranks)
    sampling = Sampling.of(config.rollout)
    sampler_serves = old_is_sampler(config.objective, engine, sampling)
    reference_forward, reference_weights = _reference(config, policy, forward, longest)
    critic = value_trainer(inputs, policy, scorer, notices, steps=steps, longest_tokens=longest, ranks=ranks)
    notices += share_model(ranks, inputs, policy, prompts, forward, reference_forward)
    optimizer = optimizer_of(policy, forward, config.training, notices)
    # The folder last, so that a run that cannot start leaves none and removes no earlier run.
    recorder = _recorder(inputs, steps, notices, console, resumed, ranks)
    run = Run(
        inputs=inputs,
        policy=policy,
        engine=engine,
        sampling=sampling,
        prompts=prompts,
        held_out=held_out,
        order=order,
        curriculum=curriculum_of(config, prompts),
        steps=steps,
        at_start=at_start if critic is None else at_start | critic.memory(),
        updater=Updater(
            forward,
            inputs.objective,
            inputs.aggregate,
            optimizer,
            config.training,
            outside=inputs.outside,
            clip_width=inputs.clip_width,
            correct=None if sampler_serves else corrector(config.objective),
            kl_in_loss=config.objective.kl.place == "loss",
            report=recorder.fault,
        ),
        optimizer=optimizer,
        old_forward=None if sampler_serves else forward,
        reference_forward=reference_forward,
        reference_weights=reference_weights,
        probe=ReferenceProbe(
            reference_forward, reference_weights, prompts, every_steps=config.health.probe_steps
        ),
        kl=KLController(inputs.control_kl, config.objective.kl.beta),
        temperature=temperature,
        critic=None if critic is None else critic.reporting(recorder.fault),
        recorder=recorder,
        keeper=Keeper(
            recorder.folder, config.checkpoint, policy, actions=recorder.watch.actions, ranks=ranks
        ),
        ranks=ranks,
    )
    ProcessRandomness().seed(config.run.seed)
    if resumed is not None:
        take_up(run, resumed, prompts, ranks=ranks)
        engine.load_weights(run.updater.updates, policy.model)
    return run


def _policy(inputs: Inputs) -> Policy:
    """The policy, whose tokenizer maps what rewards say of characters to tokens."""
    config = inputs.config
    # A weight or a number of steps that cannot be is told before the model is loaded; too long prompts may go later.
    steps_of(config, order_of(config, [row.source for row in inputs.train], config.rollout.prompts_per_step))
    policy = load_policy(
        config.model,
        lora=config.lora,
        stop_tokens=config.rollout.stop_tokens,
        base=inputs.loaded.base,
        seed=config.run.seed,
        memory=config.memory,
    )
    for rewards in (inputs.rewards, inputs.evaluation):
        rewards.decode = policy.decode
    return policy


def _reference(
    config: RunConfig, policy: Policy, forward: Forward, longest_tokens: int
) -> tuple[Forward | None, Callable[[], AbstractContextManager[None]] | None]:
    """What scores with the reference, and the context in which it does; both None where beta is 0."""
    if config.objective.kl.beta == 0:
        return None, None
    reference = build_reference(policy, reference=config.reference, lora=config.lora, memory=config.memory)
    if reference.model is policy.model:
        return forward, reference.weights
    with reference.weights():  # probed where it will score
        own = reference_scorer(reference, policy, forward.scorer, longest_tokens)
        return forward_of(own, config, forward.temperature, forward.ranks), reference.weights


def introduced(policy: Policy, scorer: TokenLogprobs) -> str:
    """The model in a sentence."""
    once = (
        "prompts computed once per group"
        if scorer.shared
        else f"prompts computed per rollout: {scorer.notice}"
    )
    attention = ", attention by FlexAttention" if policy.flex and scorer.shared else ""
    return f"{policy.name} on {policy.device}, {policy.millions:.1f} M weights, {once}{attention}"


def scorer_of(policy: Policy, config: RunConfig, *, longest_tokens: int) -> TokenLogprobs:
    """What scores the policy's responses, in the precision and by the kernels of the configuration.

    Raises:
        ConfigError: the model cannot do gradient checkpointing.
    """
    if config.training.gradient_checkpointing:
        checkpoint_layers(policy)
    training = config.training
    scorer = TokenLogprobs(
        policy.model,
        longest_tokens=longest_tokens,
        precision=policy.precision,
        flex=policy.flex,
        compiled=training.compile,
    )
    # Sampling merges adapters, autocast and compiled layers do not call the product, and checkpointing calls it twice.
    plain = policy.precision is None and not hasattr(policy.model, "peft_config")
    once = not (training.compile or training.gradient_checkpointing or config.rollout.engine != "in_process")
    if training.reuse_sampling and scorer.shared and policy.device.type == "cpu" and plain and once:
        scorer.recorded = RecordedLayers(
            scorer.backbone,
            scorer.head,
            tokens=training.micro_batch_tokens,
            masses=not config.objective.entropy_bonus,
        )
    return scorer


def reference_scorer(
    reference: Reference, policy: Policy, scorer: TokenLogprobs, longest_tokens: int
) -> TokenLogprobs:
    """What scores responses under a reference with a model of its own, in the way that the policy is scored."""
    return TokenLogprobs(
        reference.model,
        longest_tokens=longest_tokens,
        share_prefix=scorer.shared,
        precision=policy.precision,
        flex=policy.flex and reference.device.type == "cuda",
    )


def _rounding(scorer: TokenLogprobs, prompts: Sequence[Prompt], notices: list[str]) -> dict[str, Metric]:
    """What products in less than float32 do to log-probs, measured on the first prompts and told."""
    if scorer.precision is None:
        return {}
    gap_M = scorer.rounding([p.token_ids for p in prompts[:_ROUNDING_PROMPTS]])
    mean, largest = float(gap_M.mean()), float(gap_M.max())
    name = str(scorer.precision).removeprefix("torch.")
    notices.append(
        f"layers compute in {name} over float32 weights, which moves the log-probs of {len(gap_M)} prompt tokens by "
        f"{mean:.2g} nats on average, {largest:.2g} at most; model.precision: float32 is exact and slower"
    )
    return {
        "precision/gap_abs_mean": Mean(float(gap_M.sum()), len(gap_M)),
        "precision/gap_abs_max": Largest(largest),
    }


def _new_tokens(config: RunConfig, policy: Policy) -> int:
    """Longest response, in training or evaluation, with a note in it."""
    return max(config.rollout.max_new_tokens, config.evaluate.max_new_tokens or 0) + len(
        _note(config, policy)
    )


def _note(config: RunConfig, policy: Policy) -> NDArray[np.int32]:
    """The teaching text as ids."""
    teaching = config.objective.teaching
    if teaching is None:
        return np.zeros(0, dtype=np.int32)
    return np.array(policy.tokenizer(teaching.text, add_special_tokens=False)["input_ids"], dtype=np.int32)


def _prompts(inputs: Inputs, policy: Policy) -> tuple[list[Prompt], list[Prompt], list[str]]:
    """Training and held-out prompts as token ids, and what to tell of them."""
    if inputs.prompts is not None:
        return list(inputs.prompts), [], []
    config = inputs.config
    limit = prompt_limit(
        config.prompts,
        context_tokens=policy.context_tokens,
        new_tokens=_new_tokens(config, policy),
        model=policy.name,
    )
    prompts, report = encode(inputs.train, config.prompts, policy.tokenizer, limit_tokens=limit)
    notices = [*inputs.notices, *report.sentences()]
    held_out: list[Prompt] = []
    if inputs.held_out:
        held_out, report = encode(inputs.held_out, config.prompts, policy.tokenizer, limit_tokens=limit)
        notices += report.sentences()
    return prompts, held_out, notices


def _recorder(
    inputs: Inputs,
    steps: int,
    notices: Sequence[str],
    console: Console | None,
    resumed: Resumed | None,
    ranks: Ranks,
) -> Recorder:
    return open_recorder(
        inputs.loaded,
        steps=steps,
        notices=notices,
        console=console,
        origin=inputs.origin,
        resumed=resumed,
        ranks=ranks,
    )


def forward_of(
    scorer: TokenLogprobs, config: RunConfig, temperature: Temperature, ranks: Ranks = ALONE
) -> Forward:
    """A model's forward pass within the configured limits."""
    return Forward(
        scorer=scorer,
        temperature=temperature,
        tokens=config.training.micro_batch_tokens,
        rollouts=config.training.micro_batch_rollouts,
        device=next(scorer.model.parameters()).device,
        ranks=ranks,
    )
