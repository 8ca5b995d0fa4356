import pytest

from groupwise.config import load
from groupwise.config.load import known_keys
from groupwise.config.ranges import LEARNING_RATE_FULL, LEARNING_RATE_LORA, RANGES, questions


def asked(**changes: object) -> list[str]:
    return [sentence.split(" is ")[0] for sentence in questions(load(changes).config)]


def test_usual_settings_raise_no_question() -> None:
    assert asked() == []
    assert asked(lora={"rank": 16}, training={"learning_rate": 1e-4}) == []
    assert asked(training={"learning_rate": 2e-5}, rollout={"group_size": 16}) == []
    assert asked(objective="dr_grpo") == []  # no leash is a choice, not an oversight


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"rollout": {"group_size": 2}}, "rollout.group_size"),
        ({"rollout": {"group_size": 128}}, "rollout.group_size"),
        ({"rollout": {"temperature": 0.3}}, "rollout.temperature"),
        ({"rollout": {"temperature": 1.5}}, "rollout.temperature"),
        ({"rollout": {"max_new_tokens": 4}}, "rollout.max_new_tokens"),
        ({"rollout": {"prompts_per_step": 1}}, "rollout.prompts_per_step"),
        ({"objective": {"surrogate": {"low": 0.01}}}, "objective.surrogate.low"),
        ({"objective": {"surrogate": {"high": 2.0}}}, "objective.surrogate.high"),
        ({"objective": {"kl": {"beta": 0.5}}}, "objective.kl.beta"),
        ({"training": {"updates_per_batch": 10}}, "training.updates_per_batch"),
        ({"training": {"learning_rate": 1e-3}}, "training.learning_rate"),
        ({"training": {"learning_rate": 0}}, "training.learning_rate"),
        ({"training": {"learning_rate": 1e-6}, "lora": {}}, "training.learning_rate"),
    ],
)
def test_what_lies_far_outside_is_questioned_once_by_name(changes: dict[str, object], key: str) -> None:
    assert asked(**changes) == [key]


def test_a_question_says_the_value_the_usual_ones_and_why() -> None:
    (sentence,) = questions(load({"rollout": {"group_size": 2}}).config)
    assert sentence == (
        "rollout.group_size is 2; usual is 4 to 64 (small groups often have no spread; large ones cost much). "
        "Is it meant?"
    )


def test_every_range_is_of_a_setting_that_exists() -> None:
    known = known_keys()
    for entry in (*RANGES, LEARNING_RATE_FULL, LEARNING_RATE_LORA):
        assert entry.low < entry.high
        assert entry.key in known or entry.key.rsplit(".", 1)[0] in known, entry.key
