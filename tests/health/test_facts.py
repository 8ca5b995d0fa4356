import pytest

from groupwise.config import load
from groupwise.health.facts import Facts


def test_the_facts_of_a_configuration() -> None:
    tree = {
        "rollout": {"prompts_per_step": 3, "group_size": 5},
        "training": {"updates_per_batch": 2, "mini_batches": 4, "learning_rate": 2e-5, "max_grad_norm": None},
        "lora": {"rank": 4},
    }
    facts = Facts.of(load(tree).config)
    assert (facts.group_size, facts.rollouts, facts.updates_per_step) == (5, 15, 8)
    assert (facts.learning_rate, facts.max_grad_norm, facts.lora) == (2e-5, None, True)


@pytest.mark.parametrize(
    ("surrogate", "width"),
    [
        ({"name": "clip", "low": 0.1, "high": 0.3}, 0.1),
        ("policy_gradient", None),
        ("my.module:surrogate", None),
    ],
)
def test_the_width_of_the_clip(surrogate: object, width: float | None) -> None:
    from groupwise.config.choice import Choice, as_choice
    from groupwise.health.facts import clip_width

    assert clip_width(Choice.model_validate(as_choice(surrogate))) == width
