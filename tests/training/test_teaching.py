"""A note in a response, token by token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from groupwise.config.objective import FilterConfig, TeachingConfig
from groupwise.records import Group, Prompt, Rollout, StopReason, TrainingGroup, Verdict
from groupwise.training.filters import faults
from groupwise.training.teaching import insert, untaught

NOTE = np.array([7, 8], dtype=np.int32)


def decode(ids: list[int]) -> str:
    return " ".join(map(str, ids))


def rollout(stopped: bool = True) -> Rollout:
    ids = np.array([1, 2, 3], dtype=np.int32)
    return Rollout(
        prompt_id="x:0",
        group_index=0,
        token_ids_T=ids,
        trainable_T=np.ones(3, dtype=np.bool_),
        sampler_logprobs_T=np.array([-1.0, -2.0, -3.0], dtype=np.float32),
        kept_mass_T=np.array([0.9, 0.8, 0.7], dtype=np.float32),
        entropy_T=np.array([1.5, 1.25, 1.0], dtype=np.float32),
        stop_reason=StopReason.STOP if stopped else StopReason.LENGTH,
        policy_version=4,
        text=decode([1, 2] if stopped else [1, 2, 3]),
    )


def put(place: str, *, stopped: bool = True, **settings: Any) -> Any:
    return insert(rollout(stopped), NOTE, TeachingConfig(text="n", place=place, **settings), decode)


def test_a_note_at_the_end_stands_before_the_stop_token() -> None:
    taught = put("end").rollout
    assert taught.token_ids_T.tolist() == [1, 2, 7, 8, 3]
    assert taught.inserted_T is not None
    assert taught.inserted_T.tolist() == [False, False, True, True, False]
    # The note, and the stop token that follows it now, were drawn by nobody there.
    np.testing.assert_array_equal(taught.sampler_logprobs_T, [-1, -2, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(taught.kept_mass_T, np.array([0.9, 0.8, 1, 1, 0.7], dtype=np.float32))
    assert taught.text == "1 2 7 8"
    assert put("end", stopped=False).rollout.token_ids_T.tolist() == [1, 2, 3, 7, 8]
    assert put("end", stopped=False).rollout.text == "1 2 3 7 8"


def test_a_note_at_the_start_stands_before_all() -> None:
    taught = put("start").rollout
    assert taught.token_ids_T.tolist() == [7, 8, 1, 2, 3]
    assert np.isnan(taught.sampler_logprobs_T).all()
    assert taught.text == "7 8 1 2"


@pytest.mark.parametrize(
    ("place", "train_note", "answer", "trainable"),
    [
        ("end", True, "own", [1, 1, 1, 1, 1]),
        ("end", True, "mask", [0, 0, 1, 1, 1]),
        ("end", False, "weight", [1, 1, 0, 0, 0]),
        ("start", True, "mask", [1, 1, 0, 0, 0]),
        ("start", False, "own", [0, 0, 1, 1, 1]),
    ],
)
def test_what_is_trained(place: str, train_note: bool, answer: str, trainable: list[int]) -> None:
    taught = put(place, train_note=train_note, answer=answer)
    assert taught.rollout.trainable_T.astype(int).tolist() == trainable


@pytest.mark.parametrize("place", ["start", "end"])
@pytest.mark.parametrize("stopped", [True, False])
def test_taking_the_note_out_gives_the_tokens_as_they_were_sampled(place: str, stopped: bool) -> None:
    taught = put(place, stopped=stopped).rollout
    plain = rollout(stopped)
    verdict = Verdict(reward=0.0, parts={}, token_rewards=(None,) * 5)
    prompt = Prompt(id="x:0", source="x", messages=None, text="?", token_ids=NOTE)
    entry = TrainingGroup(
        group=Group(
            prompt=prompt, rollouts_G=(taught, plain), verdicts_G=(verdict, Verdict(reward=1.0, parts={}))
        ),
        advantages_GT=(np.arange(5.0), np.arange(3.0)),
        in_loss_G=np.array([True, True]),
        zero_spread=False,
        old_logprobs_GT=(np.zeros(5, dtype=np.float32), np.zeros(3, dtype=np.float32)),
        reference_logprobs_GT=None,
    )
    back = untaught(entry, decode)
    for one in back.group.rollouts_G:
        assert one.token_ids_T.tolist() == [1, 2, 3]
        assert (one.text, one.inserted_T) == (plain.text, None)
    assert back.group.verdicts_G[0].token_rewards == (None,) * 3
    assert [len(array) for array in back.advantages_GT] == [3, 3]
    assert untaught(back, decode) is back


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ({"min_tokens": 3, "max_tokens": 3, "pattern": "^1.2$", "min_reward": 0.25, "max_reward": 0.25}, ()),
        ({"min_tokens": 4}, ("length",)),
        ({"max_tokens": 2, "pattern": "3"}, ("length", "format")),
        ({"max_reward": 0.2}, ("reward",)),
        ({"reward": "form", "min_reward": 0.9}, ("reward",)),
        ({"reward": "silent", "min_reward": 0.9}, ()),  # a reward that does not apply is no reason
    ],
)
def test_proxies(chosen: dict[str, Any], found: tuple[str, ...]) -> None:
    verdict = Verdict(reward=0.25, parts={"form": 0.5, "silent": None})
    assert faults(rollout(), verdict, FilterConfig(**chosen)) == found
