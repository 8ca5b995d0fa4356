from typing import Any

import pytest

from groupwise import registry
from groupwise.config import load, ranges
from groupwise.config.keys import known_keys
from groupwise.config.objective import SURROGATES
from groupwise.config.ranges import LEARNING_RATE_FULL, LEARNING_RATE_LORA, RANGES, Range, questions

EVERY = (*RANGES, LEARNING_RATE_FULL, LEARNING_RATE_LORA)
IDS = [f"{entry.key}{' with lora' if entry is LEARNING_RATE_LORA else ''}" for entry in EVERY]


def asked(**changes: object) -> list[str]:
    return [sentence.split(" is ")[0] for sentence in questions(load(changes).config)]


def asked_at(entry: Range, value: float) -> list[str]:
    """What is asked when the setting has that value; of a product the first factor is varied."""
    key, group_size = entry.keys[0], 8
    if len(entry.keys) > 1:
        group_size = 8 if value < 100 else 32
        value /= group_size
    words = ["method=dpo"] if key.startswith("dpo.") else [f"rollout.group_size={group_size}"]
    words += [f"{key}={value!r}"]
    words += ["lora={}"] if entry is LEARNING_RATE_LORA else []
    return [sentence.split(" is ")[0] for sentence in questions(load({}, words).config)]


def test_usual_settings_raise_no_question() -> None:
    assert asked() == []
    assert asked(lora={"rank": 16}, training={"learning_rate": 1e-4}) == []
    assert asked(training={"learning_rate": 2e-5}, rollout={"group_size": 16}) == []
    assert asked(objective="dr_grpo") == []  # no leash is a choice, not an oversight


@pytest.mark.parametrize("entry", EVERY, ids=IDS)
def test_every_range_is_of_settings_that_exist_and_in_order(entry: Range) -> None:
    clip = registry.settings(registry.find(SURROGATES, "clip"))
    for key in entry.keys:
        assert key in known_keys() or (key.startswith("objective.surrogate.") and key.rsplit(".")[-1] in clip)
    assert entry.least <= entry.low < entry.high <= entry.most
    assert entry.source


# A whole number, or a value of the same kind, on each side of each bound. None: the configuration refuses it anyway.
SIDES: dict[str, tuple[float | None, float, float, float | None]] = {
    "rollout.group_size": (2, 3, 256, 257),
    "rollout.temperature": (0.46, 0.47, 1.79, 1.81),  # 0.7 / 1.5 = 0.467, 1.2 x 1.5 = 1.8
    "rollout.max_new_tokens": (7, 8, 32768, 32769),
    "rollout.prompts_per_step": (1, 2, 2048, 2049),
    "rollout.prompts_per_step x rollout.group_size": (None, 16, 16384, 16416),
    "objective.surrogate.low": (0.024, 0.025, 0.9, 0.91),
    "objective.surrogate.high": (0.024, 0.025, 1.2, 1.21),
    "objective.kl.beta": (0.0002, 0.00025, 0.4, 0.41),
    "dpo.beta": (0.0024, 0.0025, 2.0, 2.1),
    "training.updates_per_batch": (None, 1, 16, 17),
    "training.learning_rate": (1.2e-7, 1.25e-7, 8e-5, 8.1e-5),
    "training.learning_rate with lora": (0.9e-5, 1e-5, 8e-4, 8.1e-4),
}


@pytest.mark.parametrize(("entry", "name"), list(zip(EVERY, IDS, strict=True)), ids=IDS)
def test_each_asks_outside_once_by_name_and_not_inside(entry: Range, name: str) -> None:
    below, least, most, above = SIDES[name]
    for value in (entry.low, entry.high, least, most):
        assert asked_at(entry, value) == [], value
    for value in (below, above):
        assert value is None or asked_at(entry, value) == [entry.key], value


def test_a_small_batch_is_asked_about_once() -> None:
    def of(prompts: int, rollouts: int) -> list[str]:
        return asked(rollout={"prompts_per_step": prompts, "group_size": rollouts})

    responses = "rollout.prompts_per_step x rollout.group_size"
    assert of(6, 16) == []  # 96 responses: a run on a laptop
    assert of(4, 4) == []  # 16
    assert of(3, 5) == [responses]  # 15
    assert of(1, 8) == ["rollout.prompts_per_step"]  # 8 responses, but one question is enough
    assert of(2, 2) == ["rollout.group_size"]


def test_a_zero_learning_rate_is_asked_about() -> None:
    assert asked(training={"learning_rate": 0}) == ["training.learning_rate"]


def test_a_question_says_the_value_the_usual_ones_why_and_who() -> None:
    (sentence,) = questions(load({"rollout": {"group_size": 2}}).config)
    assert sentence == (
        "rollout.group_size is 2; usual is 4 to 64 (small groups often have no spread; large ones cost much; "
        "DeepSeekMath samples 64, DeepSeek-R1 and DAPO 16, TRL 8 by default). Is it meant?"
    )


def test_a_wrong_key_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: dict[str, Any] = {"low": 1, "high": 2, "least": 1, "most": 2, "why": "-", "source": "-"}
    monkeypatch.setattr(ranges, "RANGES", (Range(key="rollout.grop_size", **wrong),))
    with pytest.raises(AttributeError, match="grop_size"):
        questions(load({}).config)


def test_the_clip_of_a_surrogate_that_has_none_is_not_asked_about() -> None:
    mine = load({"objective": {"surrogate": "groupwise.objective.surrogates.clip:clip"}})
    assert questions(mine.config) == []
