from groupwise.health.metric import Mean, Metric, Total
from groupwise.training.notices import questions


def kinds(metrics: dict[str, Metric], clip_width: float | None = 0.2) -> list[str]:
    return [kind for kind, _ in questions(3, metrics, clip_width)]


def step(**changes: Metric) -> dict[str, Metric]:
    base: dict[str, Metric] = {"grad/norm": Mean(1.0, 1), "training/skipped_updates": Total(0)}
    return base | {name.replace("__", "/"): metric for name, metric in changes.items()}


def test_a_gap_is_wide_above_a_tenth_of_the_clip() -> None:
    # The clip is 0.2 wide; a tenth of it is 0.02.
    assert kinds(step(sampler__gap_abs_mean=Mean(0.019, 1))) == []
    assert kinds(step(sampler__gap_abs_mean=Mean(0.021, 1))) == ["gap"]
    assert kinds(step(sampler__gap_abs_mean=Mean(0.021, 1)), clip_width=0.3) == []
    assert kinds(step(sampler__gap_abs_mean=Mean(5.0, 1)), clip_width=None) == []
    [(_, sentence)] = questions(3, step(sampler__gap_abs_mean=Mean(0.021, 1)), 0.2)
    assert "0.021 nats per token" in sentence


def test_a_step_is_still_when_nothing_moved_and_nothing_was_skipped() -> None:
    assert kinds(step()) == []
    assert kinds(step(grad__norm=Mean(0.0, 1))) == ["still"]
    assert kinds({}) == ["still"], "a batch without any rollout in the loss"
    assert kinds({"training/skipped_updates": Total(1)}) == [], "a skipped update has a reason of its own"
    [(_, sentence)] = questions(3, {}, 0.2)
    assert sentence.startswith("step 3 changed no weight")
