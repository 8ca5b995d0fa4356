"""What a step of the loop says of itself."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from groupwise.rewards import TrainerState
from groupwise.rollouts import in_process
from groupwise.training.loop import train, train_step
from groupwise.training.setup import Run


def test_the_counts_of_a_step(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(training={"steps": 3, "learning_rate": 1e-3, "updates_per_batch": 2, "mini_batches": 2})
    result = train(run)
    # 6 prompts, 3 a step: 2 steps are an epoch.
    assert result.series("training/epoch") == [0.5, 1.0, 1.5]
    assert result.series("training/updates") == [4.0, 8.0, 12.0]
    # Every token is trainable and each counts once, though it is used in two passes.
    assert result.series("tokens/trained") == result.series("tokens/generated")
    # Measured before the weights move, so that reuse does not look like a gap.
    assert max(result.series("sampler/gap_abs_max")) < 1e-4


def test_without_a_gradient_nothing_counts_as_an_update(tiny_run: Callable[..., Run]) -> None:
    result = train(tiny_run(reward=lambda completions, **columns: [0.5] * len(completions)))
    assert result.series("training/updates") == [0.0, 0.0, 0.0]
    assert result.series("reward/zero_spread_fraction") == [1.0, 1.0, 1.0]


def test_rewards_are_told_how_many_steps_are_finished(tiny_run: Callable[..., Run]) -> None:
    seen: list[tuple[int, int | None]] = []

    def reward(completions: list[str], trainer_state: TrainerState, **columns: Any) -> list[float]:
        seen.append((trainer_state.global_step, trainer_state.max_steps))
        return [float(len(c)) for c in completions]

    train(tiny_run(reward=reward))
    assert seen == [(0, 3), (1, 3), (2, 3)]


def test_what_a_reward_logs_is_of_its_own_batch(tiny_run: Callable[..., Run]) -> None:
    calls = 0

    def reward(
        completions: list[str], log_metric: Callable[[str, float], None], **columns: Any
    ) -> list[float]:
        nonlocal calls
        calls += 1
        log_metric("calls", float(calls))
        return [float(len(c)) for c in completions]

    result = train(tiny_run(reward=reward))
    assert result.series("reward/logged/calls") == [1.0, 2.0, 3.0]


def test_a_step_that_changes_nothing_is_told_once(
    tiny_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny_run(reward=lambda completions, **columns: [None] * len(completions))
    said: list[str] = []
    monkeypatch.setattr(run.recorder, "_say", said.append)
    result = train(run)
    assert result.series("reward/absent_fraction") == [1.0, 1.0, 1.0]
    assert len(said) == 1
    assert said[0].startswith("step 1 changed no weight")


def test_gradients_switched_off_elsewhere_do_not_stop_training(tiny_run: Callable[..., Run]) -> None:
    def reward(completions: list[str], **columns: Any) -> list[float]:
        torch.set_grad_enabled(False)  # as code around a reward model does
        return [float(len(c)) for c in completions]

    try:
        result = train(tiny_run(reward=reward))
    finally:
        torch.set_grad_enabled(True)
    assert result.series("training/updates") == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(("epochs", "steps"), [(0.5, 1), (1, 2), (1.25, 3), (1.5, 3), (2, 4)])
def test_epochs_are_rounded_up_to_whole_batches(
    tiny_run: Callable[..., Run], epochs: float, steps: int
) -> None:
    # 6 prompts, 3 a step: 2 batches an epoch.
    assert tiny_run(training={"steps": None, "epochs": epochs}).steps == steps


def test_spans_of_characters_are_trained_at_their_tokens(tiny_run: Callable[..., Run]) -> None:
    def digits(completions: list[str], **columns: Any) -> list[Any]:
        # 1 for each digit at its place, and 0 for the whole, so that every response holds a value.
        return [
            [*((i, i + 1, 1.0) for i, c in enumerate(text) if c.isdigit()), (0, len(text), 0.0)]
            if text
            else 0.0
            for text in completions
        ]

    run = tiny_run(reward=digits, training={"steps": 2, "learning_rate": 1e-3})
    _, metrics = train_step(run, 1)
    groups, _ = train_step(run, 2)
    rows = [
        (rollout, verdict, advantages_T)
        for entry in groups
        for rollout, verdict, advantages_T in zip(
            entry.group.rollouts_G, entry.group.verdicts_G, entry.advantages_GT, strict=True
        )
    ]
    assert metrics["training/updates"].value == 1.0
    dense = [(r, v) for r, v, _ in rows if v.token_rewards is not None]
    assert dense
    for rollout, verdict in dense:
        pieces = [run.policy.decode([token]) for token in rollout.token_ids_T.tolist()]
        found = [sum(c.isdigit() for c in piece) for piece in pieces]
        assert [value or 0.0 for value in verdict.token_rewards] == found
    assert any(len(set(a.tolist())) > 1 for _, _, a in rows), "tokens of one response differ"


def test_what_was_computed_while_sampling_serves_the_first_update(tiny_run: Callable[..., Run]) -> None:
    """Where it may: the same run up to rounding, and told by tokens/reused."""
    kept = train(tiny_run())
    again = train(tiny_run(training={"reuse_sampling": False}))
    assert min(kept.series("tokens/reused")) > 20
    assert again.series("tokens/reused") == []
    for name in ("policy/loss", "grad/norm", "reward/mean", "policy/entropy"):
        assert kept.series(name) == pytest.approx(again.series(name), rel=1e-4, abs=1e-7)


def gradients(run: Run) -> list[torch.Tensor]:
    """Fills with the gradient of each update that the run makes."""
    seen: list[torch.Tensor] = []
    apply = run.updater.guard.apply

    def noting(*given: Any) -> Any:
        grads = [p.grad.reshape(-1) for p in run.policy.model.parameters() if p.grad is not None]
        seen.append(torch.cat(grads).clone())
        return apply(*given)

    run.updater.guard.apply = noting  # type: ignore[method-assign]
    return seen


def test_it_serves_too_where_a_batch_is_sampled_in_chunks_and_an_evaluation_lies_between(
    tiny_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "_bytes_per_token", lambda model: 2**20 // 80)  # so 80 tokens in a chunk
    chunks: list[int] = []
    split = in_process.InProcessEngine._chunks

    def counted(*given: Any) -> Any:
        found = split(*given)
        chunks.append(len(found))
        return found

    monkeypatch.setattr(in_process.InProcessEngine, "_chunks", counted)
    sections: dict[str, Any] = {
        "rollout": {"cache_megabytes": 1},
        "evaluate": {"every_steps": 1},
        "held_out": [{"prompt": "And now?"}, {"prompt": "What else is there?"}],
    }
    kept, plain = tiny_run(**sections), tiny_run(**sections, training={"reuse_sampling": False})
    found, right = gradients(kept), gradients(plain)
    reused = train(kept).series("tokens/reused")
    assert train(plain).series("tokens/reused") == []
    of_batches = [count for count in chunks if count > 1]
    assert len(of_batches) == 2 * 3, chunks  # an evaluation fits into one
    assert len(reused) == len(found) == len(right) == 3
    assert min(reused) > 20
    for mine, theirs in zip(found, right, strict=True):
        assert (mine - theirs).norm() <= 1e-4 * theirs.norm()


@pytest.mark.parametrize(
    "sections",
    [
        {"training": {"gradient_checkpointing": True}},
        {"model": {"precision": "bfloat16"}},
        {"lora": {"rank": 2}, "training": {"learning_rate": 1e-3}},
    ],
    ids=["checkpointing", "bfloat16", "adapter"],
)
def test_where_sampling_computes_otherwise_all_is_computed_anew(
    tiny_run: Callable[..., Run], sections: dict[str, Any]
) -> None:
    run = tiny_run(**sections)
    assert run.updater.forward.scorer.recorded is None
    train(run)


def test_several_forward_passes_compute_anew(tiny_run: Callable[..., Run]) -> None:
    result = train(tiny_run(training={"micro_batch_rollouts": 4}))
    assert result.series("tokens/reused") == [0.0, 0.0, 0.0]
