"""What is optimised: independent choices, with published names as presets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field, field_validator, model_validator

from groupwise import registry
from groupwise.config.base import Bool, Float, NonNegativeFloat, PositiveFloat, PositiveInt, Section, Text
from groupwise.config.choice import Choice, as_choice
from groupwise.objective.estimator import Estimator, Evidence
from groupwise.objective.kl import KL_ESTIMATORS
from groupwise.objective.ratios import RATIOS

ADVANTAGES = "groupwise.objective.advantages"
SURROGATES = "groupwise.objective.surrogates"
AGGREGATIONS = "groupwise.objective.aggregations"
KL_CONTROLLERS = "groupwise.objective.kl_controllers"

Named = Annotated[Choice, BeforeValidator(as_choice)]


class KLConfig(Section):
    """The leash to the reference."""

    estimator: Text = Field(default="k3", description="Estimator per token, from objective/kl.py.")
    place: Literal["loss", "reward"] = Field(
        default="loss",
        description="Where it acts: a term of the loss, or taken off the reward before advantages (per token for "
        "estimators over tokens, else the sum over the rollout).",
    )
    beta: NonNegativeFloat = Field(default=0.04, description="Its coefficient; 0 loads no reference at all.")
    cap_token: PositiveFloat | None = Field(
        default=None, description="The most KL that one token may add, in nats; null for no cap."
    )
    cap_rollout: PositiveFloat | None = Field(
        default=None, description="The most KL that a rollout may add, in nats; null for no cap."
    )
    reference_dropout: Annotated[Float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="Share of the reference's last hidden features that are dropped, anew each step; 0: none.",
    )
    controller: Named = Field(
        default=Choice(name="fixed"),
        description="How beta changes from step to step, from objective/kl_controllers or module:function.",
    )

    @field_validator("estimator")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in KL_ESTIMATORS:
            raise ValueError(
                f"no KL estimator is called {value!r}; there are {', '.join(sorted(KL_ESTIMATORS))}"
            )
        return value

    @field_validator("controller")
    @classmethod
    def _controller(cls, value: Choice) -> Choice:
        return value if ":" in value.name else _tried(value.checked(KL_CONTROLLERS))

    @model_validator(mode="after")
    def _fits_together(self) -> KLConfig:
        if self.place == "reward" and self.estimator == "k3_ratio":
            raise ValueError(
                "estimator is k3_ratio and place is reward, where the policy is the old one and the ratio 1; take k3"
            )
        if self.beta == 0 and self.reference_dropout > 0:
            raise ValueError(
                "beta is 0, so there is no reference for reference_dropout to act on; give a beta above 0, or remove it"
            )
        if self.beta == 0 and self.controller.name != "fixed":
            raise ValueError(
                f"beta is 0, which loads no reference, so the controller {self.controller.name} has nothing to steer; "
                "give a beta above 0, or take the controller fixed"
            )
        return self


def _tried_advantage(advantage: Choice) -> Choice:
    """The same, with every setting of an estimator that it names under `of`, and called once where rewards are enough.

    So settings that do not fit together are found here.
    """
    of = advantage.settings.get("of")
    if of is not None:
        if isinstance(of, Mapping) and not of.get("name"):
            raise ValueError(
                "of: it has no name; write the estimator's, as in {name: group_zscore, eps: 1e-6}"
            )
        inner = Choice.model_validate(as_choice(of)).checked(ADVANTAGES)
        advantage = Choice(name=advantage.name, **{**advantage.settings, "of": inner.model_dump()})
    estimate = Estimator(registry.find(ADVANTAGES, advantage.name), advantage.settings)
    if not estimate.needs:
        rewards_N, by_token = np.array([0.0, 1.0, 3.0]), tuple(np.array([[0.0], [1.0], [3.0]]))
        evidence = Evidence(
            rewards_N=rewards_N,
            rewards_NT=by_token,
            task_rewards_N=rewards_N,
            task_rewards_NT=by_token,
            groups_N=np.zeros(3, dtype=np.int64),
            lengths_N=np.ones(3, dtype=np.int64),
        )
        try:
            estimate(evidence)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{advantage.name}: {error}") from None
    return advantage


def _tried(controller: Choice) -> Choice:
    """The same, called once: settings that do not fit together are found here."""
    try:
        controller.bind(KL_CONTROLLERS)(1.0, 1.0, 0, 1.0, 1.0)
    except ValueError as error:
        raise ValueError(f"{controller.name}: {error}") from None
    return controller


class FilterConfig(Section):
    """Which rollouts enter the loss, by proxies. At least one bound is given."""

    min_tokens: PositiveInt | None = Field(default=None, description="Shorter responses are left out.")
    max_tokens: PositiveInt | None = Field(default=None, description="Longer responses are left out.")
    pattern: Text | None = Field(
        default=None, description="A regular expression that a response must hold somewhere."
    )
    reward: Text | None = Field(
        default=None, description="Label of the reward that the two bounds below are of; null: the total."
    )
    min_reward: Float | None = Field(default=None, description="Responses with less are left out.")
    max_reward: Float | None = Field(default=None, description="Responses with more are left out.")
    counted: Bool = Field(
        default=True, description="What is left out still counts in its group's mean and spread."
    )

    @model_validator(mode="after")
    def _bounds(self) -> FilterConfig:
        bounds = (self.min_tokens, self.max_tokens, self.pattern, self.min_reward, self.max_reward)
        if all(bound is None for bound in bounds):
            raise ValueError("it has no bound; give one, such as max_tokens, or remove it")
        for low, high in (("min_tokens", "max_tokens"), ("min_reward", "max_reward")):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and least > most:
                raise ValueError(f"{low} is {least:g}, more than {high}, {most:g}, so nothing would be left")
        if self.reward is not None and self.min_reward is None and self.max_reward is None:
            raise ValueError(f"reward names {self.reward!r}, but there is neither min_reward nor max_reward")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern is no regular expression: {error}") from None
        return self


class TeachingConfig(Section):
    """A note in every wrong answer. What is inserted has no sampler: it is masked, or trained as given text."""

    text: Text = Field(description="The note, as it stands, white space included.")
    place: Literal["end", "start"] = Field(
        default="end", description="Behind the answer, before its stop token; or before the answer."
    )
    below: Float | None = Field(
        default=None, description="An answer is wrong below this reward; null: evaluate.pass_reward."
    )
    train_note: Bool = Field(
        default=True,
        description="The note (and at the end the stop token) is trained with `weight`, or masked.",
    )
    answer: Literal["own", "mask", "weight"] = Field(
        default="own",
        description="The answer's own tokens keep their advantage, are masked, or are trained with `weight` too.",
    )
    weight: PositiveFloat = Field(
        default=1.0, description="What stands for an advantage where text is trained as given."
    )

    @model_validator(mode="after")
    def _has_effect(self) -> TeachingConfig:
        if not self.text:
            raise ValueError("text is empty; write the note, such as ' That is wrong.'")
        if not self.train_note and self.answer == "mask":
            raise ValueError(
                "neither the note nor the answer is trained; set train_note to true, or another answer"
            )
        if not self.train_note and self.place == "end" and self.answer == "own":
            raise ValueError(
                "the note is masked and stands behind an answer that is trained as without it, so it has no effect; "
                "set train_note to true, or place to start"
            )
        return self


class ObjectiveConfig(Section):
    """Each field is one factor of the formula that `groupwise explain` prints."""

    preset: Text = Field(
        default="grpo", description="Published choices to start from; the fields below override."
    )
    advantage: Named = Field(
        default=Choice(name="group_zscore"),
        description="Estimator, from objective/advantages or module:function.",
    )
    ratio: Text = Field(default="token", description="What the probability ratio is taken over.")
    surrogate: Named = Field(default=Choice(name="clip"), description="Surrogate, from objective/surrogates.")
    aggregation: Named = Field(
        default=Choice(name="sequence_mean"),
        description="How token losses become one, from objective/aggregations.",
    )
    kl: KLConfig = Field(default=KLConfig(), description="The KL term.")
    entropy_bonus: Float = Field(
        default=0.0, description="Weight of the policy's entropy, subtracted from the loss."
    )
    zero_spread: Literal["keep", "drop"] = Field(
        default="keep",
        description="A group whose rewards are all equal: `keep` counts it in every divisor and lets its KL act; "
        "`drop` leaves it out of the update.",
    )
    filter: FilterConfig | None = Field(
        default=None, description="Rollouts left out of the loss by length, format or reward; null: none."
    )
    teaching: TeachingConfig | None = Field(
        default=None, description="Wrong answers turned into teaching texts; null: none."
    )
    credit: Literal["process", "outcome"] = Field(
        default="process",
        description="Rewards along a response: `process` normalises each over the group and credits it to the tokens "
        "up to it; `outcome` sums them first. Of no effect where rewards give one number per response.",
    )
    truncated: Literal["keep", "mask", "penalise"] = Field(
        default="keep",
        description="A rollout cut off by max_new_tokens: trained, left out of the loss, or trained with a penalty "
        "that rises over the last tokens before the limit.",
    )
    overlong_buffer: PositiveInt | None = Field(
        default=None,
        description="Over how many tokens the penalty of `truncated: penalise` rises; null for a fifth of "
        "max_new_tokens, as in DAPO.",
    )
    overlong_penalty: PositiveFloat = Field(
        default=1.0, description="Its size at the limit, in units of reward."
    )
    old_source: Literal["auto", "sampler", "trainer"] = Field(
        default="auto",
        description="Whose log-probs are the old ones; auto takes the sampler's when it is the same model in the "
        "same precision with nothing truncated, and the trainer's otherwise.",
    )
    correction_cap: Annotated[Float, Field(ge=1)] = Field(
        default=2.0, description="Largest importance weight from sampler to old policy, where these differ."
    )

    @field_validator("advantage")
    @classmethod
    def _advantage(cls, value: Choice) -> Choice:
        return value if ":" in value.name else _tried_advantage(value.checked(ADVANTAGES))

    @field_validator("surrogate")
    @classmethod
    def _surrogate(cls, value: Choice) -> Choice:
        return value if ":" in value.name else value.checked(SURROGATES)

    @field_validator("aggregation")
    @classmethod
    def _aggregation(cls, value: Choice) -> Choice:
        return value if ":" in value.name else value.checked(AGGREGATIONS)

    @field_validator("ratio")
    @classmethod
    def _ratio(cls, value: str) -> str:
        if value not in RATIOS:
            raise ValueError(f"no ratio is called {value!r}; there are {', '.join(sorted(RATIOS))}")
        return value
