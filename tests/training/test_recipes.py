"""Each practice recipe: what it does to a tiny run, and that a run in which it has nothing to do is the same."""

from collections.abc import Callable
from string import ascii_letters, digits
from typing import Any

import numpy as np
import pytest

from groupwise.errors import ConfigError, DataError
from groupwise.records import TrainingGroup
from groupwise.records.metrics_file import NOT_COMPARABLE, read_metrics
from groupwise.records.rollout_file import read_rollouts
from groupwise.training.loop import Result, train
from groupwise.training.setup import Run
from tests.contracts.documentation import undocumented

Build = Callable[..., Run]
ROWS = [{"prompt": f"Number {i}?", "n": i, "passed": i / 8} for i in range(8)]


def parity(completions: list[str], n: list[int], **columns: Any) -> list[float]:
    """Rows from 5 on are always wrong; the others are right when the response has an even number of characters."""
    return [float(row < 5 and len(text) % 2 == 0) for text, row in zip(completions, n, strict=True)]


def batches(result: Result) -> list[list[TrainingGroup]]:
    return [read_rollouts(path) for path in sorted(result.folder.glob("rollouts/*.parquet"))]


def same(one: Run, other: Run) -> None:
    """Train both: tokens, advantages, log-probs, metrics and weights are equal bit for bit."""
    results = train(one), train(other)
    for mine, theirs in zip(*(batches(result) for result in results), strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert a.group.prompt.id == b.group.prompt.id
            for x, y in zip(a.group.rollouts_G, b.group.rollouts_G, strict=True):
                assert x.token_ids_T.tobytes() == y.token_ids_T.tobytes()
            for name in ("advantages_GT", "old_logprobs_GT"):
                for x_T, y_T in zip(getattr(a, name), getattr(b, name), strict=True):
                    assert x_T.tobytes() == y_T.tobytes()
    for line, like in zip(results[0].metrics, results[1].metrics, strict=True):
        assert {k: v for k, v in line.items() if not k.startswith(NOT_COMPARABLE)} == {
            k: like[k] for k in line if not k.startswith(NOT_COMPARABLE)
        }
    for p, q in zip(one.policy.model.parameters(), other.policy.model.parameters(), strict=True):
        assert p.detach().equal(q.detach())


def no_metric_is_unknown(result: Result) -> None:
    assert undocumented({name for line in result.metrics for name in line} - {"step"}) == []


# Dynamic sampling


def test_dynamic_sampling_fills_the_batch_with_groups_that_have_spread(tiny_run: Build) -> None:
    settings = {"prompts_per_step": 3, "group_size": 4, "max_new_tokens": 8, "max_redraws": 4}
    result = train(tiny_run(reward=parity, rows=ROWS, rollout=settings))
    no_metric_is_unknown(result)
    plain = train(tiny_run(reward=parity, rows=ROWS, rollout={**settings, "max_redraws": 0}))
    assert np.mean(result.series("reward/zero_spread_fraction")) < np.mean(
        plain.series("reward/zero_spread_fraction")
    )
    assert sum(result.series("sampler/redraws")) >= 1
    for line, groups in zip(result.metrics, batches(result), strict=True):
        assert len({entry.group.prompt.id for entry in groups}) == 3
        kept = sum(len(r.token_ids_T) for entry in groups for r in entry.group.rollouts_G)
        # What was sampled and replaced is paid for, and is told.
        assert line["tokens/generated"] == kept + line.get("tokens/left_out", 0.0)
    assert max(result.series("training/epoch")) > 3 * 3 / 8  # further prompts move the position on


def test_dynamic_sampling_without_flat_groups_changes_nothing(tiny_run: Build) -> None:
    settings = {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 8}
    same(
        tiny_run(rollout=settings),
        tiny_run(rollout={**settings, "max_redraws": 9}),
    )


def test_a_penalty_on_length_is_no_spread(tiny_run: Build) -> None:
    def wrong(completions: list[str], **columns: Any) -> list[float]:
        return [0.0] * len(completions)

    run = tiny_run(
        reward=wrong,
        rows=ROWS,
        rollout={"prompts_per_step": 2, "max_redraws": 2},
        objective={"truncated": "penalise", "overlong_buffer": 8, "kl": {"beta": 0.0}},
        training={"steps": 1, "learning_rate": 1e-3},
    )
    assert train(run).series("sampler/redraws") == [2.0]


# Curriculum


def test_a_curriculum_begins_with_what_is_easy_and_rises(tiny_run: Build) -> None:
    chosen = {"difficulty": [0.3, 1.0], "steps": 8, "mastered": None, "column": "passed"}
    run = tiny_run(
        reward=parity,
        rows=ROWS,
        prompts={"curriculum": chosen},
        rollout={"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 4},
        training={"steps": 10, "learning_rate": 0.0},
    )
    result = train(run)
    no_metric_is_unknown(result)
    asked = [{int(entry.group.prompt.id.split(":")[1]) for entry in groups} for groups in batches(result)]
    # Row i passed in i / 8 of the answers: at first those of at least 0.7 are ready, 6 and 7; at the end all are.
    assert asked[0] == {6, 7}
    assert result.series("curriculum/threshold") == pytest.approx([*np.linspace(0.3, 1.0, 9), 1.0])
    assert result.series("curriculum/ready_fraction")[-1] == 1.0
    assert run.curriculum is not None
    # Rows 6 and 7 are always wrong: 0.5 x 0.75 + 0.5 x 0, and once more each time that they are asked.
    assert run.curriculum.success_P[6] == 0.75 * 0.5 ** sum(6 in rows for rows in asked)


def test_what_is_mastered_is_passed_over_until_it_is_due(tiny_run: Build) -> None:
    def right(completions: list[str], n: list[int], **columns: Any) -> list[float]:
        return [float(row % 2 == 0) for row in n]

    chosen = {"difficulty": [1.0, 1.0], "mastered": 0.75, "keep": 0.5, "again_after": 3}
    run = tiny_run(
        reward=right,
        rows=ROWS,
        prompts={"curriculum": chosen, "shuffle": False},
        rollout={"prompts_per_step": 4, "group_size": 2, "max_new_tokens": 3},
        training={"steps": 5, "learning_rate": 0.0},
    )
    asked = [[e.group.prompt.columns["n"] for e in groups] for groups in batches(train(run))]
    # After one round even rows stand at 0.75 and are passed over; those of the first step are due in the 4th.
    assert asked == [[0, 1, 2, 3], [4, 5, 6, 7], [1, 3, 5, 7], [0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_curriculum_in_which_all_is_ready_changes_nothing(tiny_run: Build) -> None:
    settings = {"rollout": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 6}, "rows": ROWS}
    open_to_all = {"difficulty": [1.0, 1.0], "mastered": None}
    same(
        tiny_run(reward=parity, **settings),
        tiny_run(reward=parity, prompts={"curriculum": open_to_all}, **settings),
    )


# Filters


def test_a_filter_leaves_out_of_the_loss_what_it_counts(tiny_run: Build) -> None:
    run = tiny_run(
        reward=parity,
        rows=ROWS,
        objective={"filter": {"max_tokens": 7, "max_reward": 0.5}, "kl": {"beta": 0.0}},
    )
    result = train(run)
    no_metric_is_unknown(result)
    for line, groups in zip(result.metrics, batches(result), strict=True):
        pairs = [
            (len(r.token_ids_T) <= 7 and v.reward == 0.0, bool(entry.in_loss_G[i]))
            for entry in groups
            for i, (r, v) in enumerate(zip(entry.group.rollouts_G, entry.group.verdicts_G, strict=True))
        ]
        assert all(stays == in_loss for stays, in_loss in pairs)
        assert line["filter/left_out_fraction"] == np.mean([not stays for stays, _ in pairs])
    assert 0 < np.mean(result.series("filter/left_out_fraction")) < 1


def test_what_a_filter_leaves_out_counts_in_its_group_unless_it_is_told_not_to(tiny_run: Build) -> None:
    for counted in (True, False):
        chosen = {"max_reward": 0.5, "counted": counted}
        run = tiny_run(
            reward=parity,
            rows=ROWS[:3],
            objective={"filter": chosen, "kl": {"beta": 0.0}},
            training={"steps": 1, "learning_rate": 1e-3},
        )
        [groups] = batches(train(run))
        for entry in groups:
            rewards = [v.reward for v in entry.group.verdicts_G]
            split = 0 < sum(r or 0.0 for r in rewards) < len(rewards)
            moved = any(array.any() for array in entry.advantages_GT)
            # Only wrong rollouts stay; alone they are equal, beside the right ones they are below the mean.
            assert moved == (split and counted)


def test_a_filter_that_leaves_nothing_out_changes_nothing(tiny_run: Build) -> None:
    loose = {"max_tokens": 1000, "min_reward": -5.0, "pattern": ""}
    same(
        tiny_run(reward=parity, rows=ROWS),
        tiny_run(reward=parity, rows=ROWS, objective={"filter": loose, "kl": {"beta": 0.0}}),
    )


# Reference dropout


def test_reference_dropout_moves_the_references_log_probs_alone_and_differs_each_step(
    tiny_run: Build,
) -> None:
    def run_with(share: float, **training: Any) -> Run:
        kl = {"beta": 0.1, "reference_dropout": share}
        return tiny_run(
            reward=parity,
            rows=ROWS,
            objective={"kl": kl},
            training={"steps": 2, "learning_rate": 0.0, **training},
        )

    plain, dropped, again = (
        batches(train(run)) for run in (run_with(0.0), run_with(0.3), run_with(0.3, micro_batch_rollouts=1))
    )
    for a, b, c in zip(plain[0] + plain[1], dropped[0] + dropped[1], again[0] + again[1], strict=True):
        assert a.reference_logprobs_GT is not None
        assert b.reference_logprobs_GT is not None
        assert c.reference_logprobs_GT is not None
        for i in range(len(a.group.rollouts_G)):
            assert a.group.rollouts_G[i].token_ids_T.tobytes() == b.group.rollouts_G[i].token_ids_T.tobytes()
            assert np.array_equal(a.old_logprobs_GT[i], b.old_logprobs_GT[i])
            assert np.abs(a.reference_logprobs_GT[i] - b.reference_logprobs_GT[i]).max() > 1e-3
            # How tokens are batched does not matter, since one mask serves all.
            np.testing.assert_allclose(b.reference_logprobs_GT[i], c.reference_logprobs_GT[i], atol=1e-4)


def test_reference_dropout_works_through_an_adapter_and_leaves_the_policy_alone(tiny_run: Build) -> None:
    run = tiny_run(
        reward=parity,
        rows=ROWS,
        lora={"rank": 2},
        objective={"kl": {"beta": 0.1, "reference_dropout": 0.5}},
        training={"steps": 1, "learning_rate": 0.0},
    )
    [groups] = batches(train(run))
    gaps = [
        np.abs(entry.old_logprobs_GT[i] - (entry.reference_logprobs_GT or ())[i]).max()
        for entry in groups
        for i in range(4)
    ]
    # A fresh adapter is the reference itself, so all of the difference is the dropout's.
    assert min(gaps) > 1e-3


def test_a_reference_of_which_nothing_is_dropped_changes_nothing(tiny_run: Build) -> None:
    # Of 64 features with a chance of 1e-9 each none goes in three steps, and in float32 1 / (1 - 1e-9) is 1.
    same(
        *(
            tiny_run(reward=parity, rows=ROWS, objective={"kl": {"beta": 0.1, **dropout}})
            for dropout in ({}, {"reference_dropout": 1e-9})
        )
    )


# Confidence


def test_confidence_is_corrected_for_like_any_other_sampler(tiny_run: Build) -> None:
    settings = {"confidence": {"threshold": 0.02, "redraws": 2}, "prompts_per_step": 2}
    run = tiny_run(reward=parity, rows=ROWS, rollout=settings)
    result = train(run)
    no_metric_is_unknown(result)
    assert run.old_forward is not None  # the trainer's log-probs are the old ones
    assert min(result.series("sampler/correction_mean")) > 0
    gaps = [
        np.abs(entry.old_logprobs_GT[i] - rollout.sampler_logprobs_T)
        for groups in batches(result)
        for entry in groups
        for i, rollout in enumerate(entry.group.rollouts_G)
        if entry.in_loss_G[i]
    ]
    # At a mass M above the threshold, a token below it stands with p (1 + M + M^2) and one above it with p M^2.
    assert max(gap.max() for gap in gaps) > 1e-2


def test_confidence_in_no_token_changes_nothing(tiny_run: Build) -> None:
    """No token of the tiny model is this likely, so none is drawn again."""
    same(
        *(
            tiny_run(
                reward=parity,
                rows=ROWS,
                rollout={"max_new_tokens": 8, **settings},
                objective={"old_source": "trainer", "kl": {"beta": 0.0}},
            )
            for settings in ({}, {"confidence": {"threshold": 0.9, "redraws": 2}})
        )
    )


# Teaching texts

NOTE = " No."


def taught_run(tiny_run: Build, **teaching: Any) -> Run:
    return tiny_run(
        reward=parity,
        rows=ROWS,
        objective={"teaching": {"text": NOTE, **teaching}, "kl": {"beta": 0.1}},
        training={"steps": 2, "learning_rate": 1e-3},
    )


@pytest.mark.parametrize("place", ["start", "end"])
@pytest.mark.parametrize(
    ("train_note", "answer"), [(True, "own"), (True, "mask"), (True, "weight"), (False, "weight")]
)
def test_a_note_is_inserted_and_trained_as_chosen(
    tiny_run: Build, place: str, train_note: bool, answer: str
) -> None:
    run = taught_run(tiny_run, place=place, train_note=train_note, answer=answer, weight=0.5)
    result = train(run)
    no_metric_is_unknown(result)
    note = run.policy.tokenizer(NOTE, add_special_tokens=False)["input_ids"]
    stop = set(run.policy.stop_token_ids)
    count = 0
    for entry in (entry for groups in batches(result) for entry in groups):
        for i, (rollout, verdict) in enumerate(
            zip(entry.group.rollouts_G, entry.group.verdicts_G, strict=True)
        ):
            if verdict.reward == 1.0:
                assert rollout.inserted_T is None
                continue
            count += 1
            assert rollout.inserted_T is not None
            assert rollout.token_ids_T[rollout.inserted_T].tolist() == note
            assert NOTE in rollout.text
            at = int(np.argmax(rollout.inserted_T))
            behind = rollout.token_ids_T[at + len(note) :].tolist()
            assert at == 0 if place == "start" else (behind == [] or set(behind) <= stop)
            of_note = rollout.inserted_T.copy()
            if place == "end":
                of_note[at:] = True  # the stop token behind the note is learned with it
            assert (rollout.trainable_T[of_note] == train_note).all()
            assert (rollout.trainable_T[~of_note] == (answer != "mask")).all()
            if train_note:
                assert (entry.advantages_GT[i][of_note] == 0.5).all()
            if answer == "weight":
                assert (entry.advantages_GT[i][~of_note] == 0.5).all()
            assert np.isfinite(rollout.sampler_logprobs_T).all()
            assert np.isfinite(entry.old_logprobs_GT[i]).all()
            assert entry.reference_logprobs_GT is not None
            assert np.isfinite(entry.reference_logprobs_GT[i]).all()
    assert count == sum(result.series("teaching/rollouts")) > 0
    assert (
        max(result.series("sampler/gap_abs_max")) < 1e-3
    )  # given text is scored by the policy that begins the batch
    assert max(result.series("ratio/max")) < 1.001


def test_notes_in_no_answer_change_nothing(tiny_run: Build) -> None:
    kl = {"kl": {"beta": 0.1}}
    same(
        tiny_run(reward=parity, rows=ROWS, objective=kl),
        tiny_run(reward=parity, rows=ROWS, objective={"teaching": {"text": NOTE, "below": -1.0}, **kl}),
    )


def test_an_all_wrong_group_teaches_by_its_notes(tiny_run: Build) -> None:
    def wrong(completions: list[str], **columns: Any) -> list[float]:
        return [0.0] * len(completions)

    objective: dict[str, Any] = {"kl": {"beta": 0.0}}
    plain = train(tiny_run(reward=wrong, rows=ROWS, objective=objective))
    assert plain.series("training/updates")[-1] == 0.0
    taught = train(tiny_run(reward=wrong, rows=ROWS, objective={**objective, "teaching": {"text": NOTE}}))
    assert taught.series("training/updates")[-1] == 3.0


# Overlong responses and length buckets


def test_masked_and_penalised_truncation_and_length_buckets_in_a_run(tiny_run: Build) -> None:
    def run_with(**objective: Any) -> Result:
        return train(tiny_run(reward=parity, rows=ROWS, objective={"kl": {"beta": 0.0}, **objective}))

    for entry in (e for groups in batches(run_with(truncated="mask")) for e in groups):
        for i, rollout in enumerate(entry.group.rollouts_G):
            assert entry.in_loss_G[i] == (rollout.stop_reason.value != "length")
    for entry in (e for g in batches(run_with(truncated="penalise", overlong_buffer=4)) for e in g):
        for rollout, verdict in zip(entry.group.rollouts_G, entry.group.verdicts_G, strict=True):
            # Four of the eight tokens are free; then a quarter each.
            assert verdict.terms["soft_overlong"] == -max(0, len(rollout.token_ids_T) - 4) / 4


@pytest.mark.parametrize("truncated", ["mask", "penalise"])
def test_a_penalty_on_what_is_cut_off_changes_nothing_where_nothing_is(
    tiny_run: Build, truncated: str
) -> None:
    """Where every letter and digit ends a response, none comes near the limit."""
    runs = [
        tiny_run(
            reward=parity,
            rows=ROWS,
            rollout={"max_new_tokens": 160, "stop_tokens": list(ascii_letters + digits)},
            objective={"kl": {"beta": 0.0}, **chosen},
        )
        for chosen in (
            {},
            {"truncated": truncated, **({"overlong_buffer": 2} if truncated == "penalise" else {})},
        )
    ]
    same(*runs)
    assert max(line["length/max"] for line in read_metrics(runs[0].folder.metrics_file)) < 150


def test_one_bucket_for_all_lengths_changes_nothing(tiny_run: Build) -> None:
    same(
        *(
            tiny_run(reward=parity, rows=ROWS, objective={"advantage": advantage, "kl": {"beta": 0.0}})
            for advantage in (
                {"name": "group_zscore"},
                {"name": "length_buckets", "of": "group_zscore", "factor": 1e6},
            )
        )
    )


def test_length_buckets_compare_a_response_with_those_of_its_length(tiny_run: Build) -> None:
    def uneven(completions: list[str], **columns: Any) -> list[float]:
        return [float(len(text) % 3) for text in completions]

    plain, bucketed = (
        batches(
            train(
                tiny_run(
                    reward=uneven,
                    rollout={"prompts_per_step": 3, "group_size": 12, "max_new_tokens": 40},
                    objective={
                        "advantage": {"name": "length_buckets", "of": "group_mean", "factor": factor},
                        "kl": {"beta": 0.0},
                    },
                    training={"steps": 1, "learning_rate": 0.0},
                )
            )
        )[0]
        for factor in (1e6, 1.5)
    )
    assert any(
        not np.allclose(x, y)
        for a, b in zip(plain, bucketed, strict=True)
        for x, y in zip(a.advantages_GT, b.advantages_GT, strict=True)
    )
    for a in plain:  # one bucket holds all, so the estimator is the one inside
        rewards = np.array([v.reward for v in a.group.verdicts_G], dtype=np.float64)
        means = [array[0] for array in a.advantages_GT]
        np.testing.assert_allclose(means, rewards - rewards.mean(), atol=1e-12)


# A limit of each row


def test_rows_have_limits_of_their_own(tiny_run: Build) -> None:
    rows = [{"prompt": f"Number {i}?", "n": i, "most": [None, 2, 5][i]} for i in range(3)]
    result = train(
        tiny_run(
            reward=parity,
            rows=rows,
            prompts={"columns": {"max_new_tokens": "most"}},
            objective={"truncated": "penalise", "kl": {"beta": 0.0}},
        )
    )
    seen = {0: 0, 1: 0, 2: 0}
    for entry in (entry for groups in batches(result) for entry in groups):
        row = entry.group.prompt.columns["n"]
        assert "most" not in entry.group.prompt.columns
        assert entry.group.prompt.max_new_tokens == [None, 2, 5][row]
        for rollout, verdict in zip(entry.group.rollouts_G, entry.group.verdicts_G, strict=True):
            seen[row] = max(seen[row], len(rollout.token_ids_T))
            at_limit = len(rollout.token_ids_T) == [8, 2, 5][row]
            assert (verdict.terms["soft_overlong"] == -1.0) == at_limit
    assert seen == {0: 8, 1: 2, 2: 5}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"prompts": {"curriculum": {"difficulty": [0.9, 0.5]}}}, "difficulty goes from 0.9 to 0.5"),
    ({"prompts": {"curriculum": {"difficulty": [0.5, 1.5]}}}, "ends at 1 or below"),
    ({"prompts": {"curriculum": {"mastered": 0}}}, "mastered"),
    ({"prompts": {"curriculum": {"keep": 1.0}}}, "keep"),
    ({"prompts": {"curriculum": {"steps": 0}}}, "steps"),
    ({"prompts": {"curriculum": {"treshold": 0.5}}}, "unknown key prompts.curriculum.treshold"),
    ({"rollout": {"max_redraws": -1}}, "max_redraws"),
    ({"rollout": {"confidence": {"threshold": 1.0}}}, "threshold"),
    ({"rollout": {"confidence": {"redraws": 0}}}, "redraws"),
    (
        {"rollout": {"confidence": {"threshold": 0.7}}, "objective": {"old_source": "sampler"}},
        "confidence change what the sampler draws from",
    ),
    ({"objective": {"filter": {"counted": False}}}, "it has no bound"),
    (
        {"objective": {"filter": {"min_tokens": 9, "max_tokens": 3}}},
        "min_tokens is 9, more than max_tokens, 3",
    ),
    ({"objective": {"filter": {"pattern": "("}}}, "no regular expression"),
    ({"objective": {"filter": {"reward": "numeric", "max_tokens": 9}}}, "neither min_reward nor max_reward"),
    ({"objective": {"filter": {"reward": "parety", "max_reward": 1}}}, "did you mean 'parity'"),
    ({"objective": {"teaching": {}}}, "objective.teaching.text: it is missing"),
    ({"objective": {"teaching": {"text": ""}}}, "text is empty"),
    ({"objective": {"teaching": {"text": "x", "train_note": False}}}, "it has no effect"),
    (
        {"objective": {"teaching": {"text": "x", "train_note": False, "answer": "mask"}}},
        "neither the note nor",
    ),
    (
        {"objective": {"teaching": {"text": "x"}, "preset": "rloo", "kl": {"beta": 0.1}}},
        "KL acts in the reward",
    ),
    (
        {"objective": {"teaching": {"text": "x"}, "preset": "ppo", "kl": {"beta": 0.0}}},
        "the advantage gae has a critic",
    ),
    ({"objective": {"kl": {"beta": 0.0, "reference_dropout": 0.5}}}, "no reference for reference_dropout"),
    ({"objective": {"kl": {"beta": 0.1, "reference_dropout": 1.0}}}, "reference_dropout"),
]


@pytest.mark.parametrize(("sections", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_wrong_settings_are_refused_before_a_model_is_loaded(
    tiny_run: Build, monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(
        "groupwise.training.setup.load_policy", lambda *a, **k: pytest.fail("a model was loaded")
    )
    with pytest.raises(ConfigError) as caught:
        tiny_run(reward=parity, rows=ROWS, **sections)
    assert said in str(caught.value)


@pytest.mark.parametrize("value", ["0.5", -0.1, 1.5, True])
def test_a_wrong_first_estimate_names_its_row(tiny_run: Build, value: object) -> None:
    rows = [{**row, "passed": value if row["n"] == 3 else None} for row in ROWS]
    with pytest.raises(DataError, match=r"train:3: column 'passed' \(prompts\.curriculum\.column\) holds"):
        tiny_run(reward=parity, rows=rows, prompts={"curriculum": {"column": "passed"}})


def test_a_missing_column_of_first_estimates_is_named(tiny_run: Build) -> None:
    with pytest.raises(DataError, match=r"no column 'easy' \(prompts\.curriculum\.column\)"):
        tiny_run(reward=parity, rows=ROWS, prompts={"curriculum": {"column": "easy"}})
