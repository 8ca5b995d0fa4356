from typing import Any

from groupwise.config.objective import ObjectiveConfig
from groupwise.health.metric import Mean, Metric, Spread, Total
from groupwise.training.notices import questions

GRPO = ObjectiveConfig()
PRODUCT = ObjectiveConfig(ratio="sequence_product")
CAPPED = ObjectiveConfig.model_validate({"kl": {"cap_token": 2.0, "cap_rollout": 30}})


def told(
    metrics: dict[str, Metric],
    clip_width: float | None = 0.2,
    *,
    objective: ObjectiveConfig = GRPO,
    keeps_unit: bool = False,
) -> dict[str, str]:
    return dict(questions(3, metrics, objective, clip_width, keeps_unit))


def kinds(metrics: dict[str, Metric], clip_width: float | None = 0.2, **more: Any) -> list[str]:
    return list(told(metrics, clip_width, **more))


def step(**changes: Metric) -> dict[str, Metric]:
    base: dict[str, Metric] = {"grad/norm": Mean(1.0, 1), "training/skipped_updates": Total(0)}
    return base | {name.replace("__", "/"): metric for name, metric in changes.items()}


def test_a_step_is_still_when_nothing_moved_and_nothing_was_skipped() -> None:
    assert kinds(step()) == []
    assert kinds(step(grad__norm=Mean(0.0, 1))) == ["still"]
    assert kinds({}) == ["still"], "a batch without any rollout in the loss"
    assert kinds({"training/skipped_updates": Total(1)}) == [], "a skipped update has a reason of its own"
    assert told({})["still"].startswith("step 3 changed no weight")


def test_the_product_over_a_response_is_wide_beyond_the_clip() -> None:
    # Log-ratios -0.3 and 0.3: std 0.3
    wide = step(ratio__log_std=Spread.of([-0.3, 0.3]), length__mean=Mean(40.0, 1))
    assert kinds(wide, objective=PRODUCT) == ["sequence_ratio_unnormalised"]
    assert kinds(wide, clip_width=0.31, objective=PRODUCT) == []
    assert kinds(wide, clip_width=None, objective=PRODUCT) == [], "without a clip the bound is 1"
    assert kinds(wide) == [], "a ratio per token is not meant"
    sentence = told(wide, objective=PRODUCT)["sequence_ratio_unnormalised"]
    assert "spread by 0.3 nats (responses of 40 tokens on average), beyond 0.2" in sentence


def test_a_tiny_spread_is_told_where_it_is_scaled() -> None:
    tiny = step(reward__tiny_spread_fraction=Mean(1.0, 4.0))
    assert "in 25% of the groups" in told(tiny)["tiny_spread"]
    assert kinds(tiny, keeps_unit=True) == []
    assert kinds(step(reward__tiny_spread_fraction=Mean(0.0, 4.0))) == []


def test_a_cap_that_bites_is_named_with_its_share() -> None:
    held = step(kl__capped_fraction=Mean(3.0, 40.0))
    sentence = told(held, objective=CAPPED)["kl_capped"]
    assert (
        "objective.kl.cap_token=2 and objective.kl.cap_rollout=30 held the KL of 7.5% of the tokens"
        in sentence
    )
    assert kinds(step(kl__capped_fraction=Mean(0.0, 40.0)), objective=CAPPED) == []
