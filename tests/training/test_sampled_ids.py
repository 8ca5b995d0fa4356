"""Case f03: the sampled ids are what is trained on; text is for rewards alone."""

from pathlib import Path

import numpy as np

from groupwise.model.tiny import tiny_tokenizer
from groupwise.objective.aggregations.token_mean import token_mean
from groupwise.records import Group, Prompt, Rollout, StopReason, TrainingGroup, Verdict
from groupwise.records.rollout_file import read_rollouts, write_rollouts
from groupwise.training.batch import families_of, rows_of, weighted


def test_ids_that_text_would_spell_otherwise_are_trained_as_they_came(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    letters = tokenizer.convert_tokens_to_ids(list("yes"))  # " yes" is one token; here it comes in letters
    emoji = tokenizer.encode(
        "🦦", add_special_tokens=False
    )  # four bytes, of which the limit cut off the last
    ids = np.array(
        [*tokenizer.encode(" the", add_special_tokens=False)[:1], *letters, *emoji[:3]], dtype=np.int32
    )
    space = tokenizer.encode(" yes", add_special_tokens=False)
    pieces = tokenizer.convert_tokens_to_ids(["Ġ", "y", "e", "s"])
    assert len(space) == 1
    assert tokenizer.decode(pieces) == tokenizer.decode(space)
    ids = np.concatenate([np.array(pieces, dtype=np.int32), ids])
    text = tokenizer.decode(ids.tolist())
    assert tokenizer.encode(text, add_special_tokens=False) != ids.tolist(), "the case must be a real one"

    n = len(ids)
    prompt = Prompt(
        id="a:0", source="a", messages=None, text="Say", token_ids=np.array([5, 6], dtype=np.int32)
    )
    rollout = Rollout(
        prompt_id="a:0",
        group_index=0,
        token_ids_T=ids,
        trainable_T=np.ones(n, dtype=np.bool_),
        sampler_logprobs_T=-np.arange(n, dtype=np.float32),
        kept_mass_T=None,
        entropy_T=None,
        stop_reason=StopReason.LENGTH,
        policy_version=0,
        text=text,
    )
    group = Group(prompt=prompt, rollouts_G=(rollout,), verdicts_G=(Verdict(reward=1.0, parts={"r": 1.0}),))
    training = TrainingGroup(
        group=group,
        advantages_GT=(np.ones(n),),
        in_loss_G=np.array([True]),
        zero_spread=False,
        old_logprobs_GT=(rollout.sampler_logprobs_T,),
        reference_logprobs_GT=None,
    )
    write_rollouts(tmp_path / "step.parquet", [training], step=1)
    for groups in ([training], read_rollouts(tmp_path / "step.parquet")):
        [row] = weighted(rows_of(groups, None), token_mean)
        [family] = families_of([row])
        assert family.responses[0].tolist() == ids.tolist()
        assert row.old_logprobs_T.tolist() == (-np.arange(n, dtype=np.float32)).tolist()
