"""Groups with awkward values, for tests of records."""

import dataclasses
import struct

import numpy as np

from groupwise.records import Baseline, Group, Prompt, Rollout, StopReason, TrainingGroup, Verdict

NAN_WITH_PAYLOAD = struct.unpack("<f", struct.pack("<I", 0x7FC12345))[0]


def rollout(index: int, *, prompt_id: str, tokens: int, cut: bool, stop: StopReason) -> Rollout:
    awkward = np.array([-0.0, 1e-45, -103.97208, np.inf, -np.inf, -0.1], dtype=np.float32)
    return Rollout(
        prompt_id=prompt_id,
        group_index=index,
        token_ids_T=np.arange(tokens, dtype=np.int32) * 7 + index,
        trainable_T=np.arange(tokens) % 3 != 2,
        sampler_logprobs_T=awkward[:tokens],
        kept_mass_T=np.linspace(0.1, 1.0, tokens, dtype=np.float32) if cut else None,
        entropy_T=None if cut else np.linspace(2.0, 0.5, tokens, dtype=np.float32),
        stop_reason=stop,
        policy_version=41 + index,
        text=f"réponse {index} 🦊\x00\n",
    )


def with_critic_and_greedy(entry: TrainingGroup) -> TrainingGroup:
    """The group with a greedy baseline, and a critic's values, one of them not a number."""
    rollouts = entry.group.rollouts_G
    greedy = rollout(
        len(rollouts), prompt_id=entry.group.prompt.id, tokens=4, cut=False, stop=StopReason.LENGTH
    )
    verdict = Verdict(reward=None, parts={"exact": None}, failure="exact: raised ValueError")
    values = tuple(np.linspace(-1.0, 1.0, len(r.token_ids_T), dtype=np.float32) for r in rollouts)
    return dataclasses.replace(
        entry,
        group=dataclasses.replace(entry.group, greedy=Baseline(rollout=greedy, verdict=verdict)),
        values_GT=values,
        value_targets_GT=tuple(np.where(v > 0, v, np.float32(NAN_WITH_PAYLOAD)) for v in values),
    )


def two_groups(*, reference: bool = True) -> list[TrainingGroup]:
    """A chat group of 3 (one truncated, one without reward, one empty) and a text group of 2 for the same row twice."""
    chat = Prompt(
        id="a.jsonl:4",
        source="a.jsonl",
        messages=({"role": "system", "content": "Sei knapp."}, {"role": "user", "content": "2+2? ½"}),
        text="<|im_start|>system\nSei knapp.<|im_end|>\n",
        token_ids=np.array([1, 2, 2**31 - 1], dtype=np.int32),
        columns={"gold": "4", "n": 0.1, "deep": {"list": [1, None, True, {"x": "\ud83d"}]}, "empty": {}},
    )
    plain = Prompt(
        id="b.jsonl:9", source="b.jsonl", messages=None, text="2+2=", token_ids=np.array([5], dtype=np.int32)
    )
    lengths = (6, 3, 0)
    first = Group(
        prompt=chat,
        rollouts_G=tuple(
            rollout(
                i,
                prompt_id=chat.id,
                tokens=lengths[i],
                cut=False,
                stop=StopReason.LENGTH if i == 0 else StopReason.STOP,
            )
            for i in range(3)
        ),
        verdicts_G=(
            Verdict(
                reward=0.1 + 0.2,
                parts={"exact": 0.0, "format": None},
                terms={"exact": 0.1 + 0.2},
                token_rewards=(None, 0.1, -0.0, None, 0.2, 5e-324),
            ),
            Verdict(reward=None, parts={"exact": None, "format": None}, failure="exact: raised ValueError"),
            Verdict(reward=-0.0, token_rewards=(), parts={}),
        ),
    )
    second = Group(
        prompt=plain,
        rollouts_G=tuple(
            rollout(i, prompt_id=plain.id, tokens=2 + i, cut=True, stop=StopReason.STOP) for i in range(2)
        ),
        verdicts_G=(
            Verdict(reward=1.0, parts={"z": 1.0, "a": 2.0}),
            Verdict(reward=1.0, parts={"z": 1.0, "a": 2.0}),
        ),
    )

    def logprobs(group: Group, shift: float) -> tuple[np.ndarray, ...]:
        values = [r.sampler_logprobs_T + np.float32(shift) for r in group.rollouts_G]
        if len(values[0]):
            values[0][0] = NAN_WITH_PAYLOAD
        return tuple(values)

    def every(group: Group, i: int, advantage: float) -> np.ndarray:
        return np.where(group.rollouts_G[i].trainable_T, advantage, 0.0)

    return [
        TrainingGroup(
            group=group,
            advantages_GT=tuple(advantages),
            in_loss_G=np.array(in_loss, dtype=np.bool_),
            zero_spread=zero,
            old_logprobs_GT=logprobs(group, 0.0),
            reference_logprobs_GT=logprobs(group, -0.25) if reference else None,
        )
        for group, advantages, in_loss, zero in (
            # One number for every trained token, another for each, none at all.
            (
                first,
                [every(first, 0, 1 / 3), np.array([-0.0, 5e-324, 0.0]), np.zeros(0)],
                [True, False, True],
                False,
            ),
            (second, [every(second, 0, 0.0), every(second, 1, -0.0)], [True, True], True),
            (second, [np.array([0.0, -0.0]), every(second, 1, 0.0)], [False, False], True),
        )
    ]
