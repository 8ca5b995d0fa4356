import re

import pytest

from groupwise.config import load, presets
from groupwise.config.load import leaves
from groupwise.errors import ConfigError


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_states_every_choice_and_cites_its_paper(name: str) -> None:
    stated = {key for key, _ in leaves(presets.load(name)["objective"])}
    config = load({"objective": name}).config
    assert config.objective.preset == name
    resolved = config.objective.model_dump()
    left_open = {key for key, _ in leaves(resolved)} - stated
    # Whose log-probs are the old ones depends on the engine, not on the algorithm.
    assert left_open == {"preset", "old_source", "correction_cap"}
    assert re.search(r"arXiv \d{4}\.\d{5}", presets.text(name))


def test_grpo_is_the_published_one() -> None:
    # DeepSeekMath: group std, token ratio, one update per batch, KL coefficient 0.04 on k3 in the loss.
    objective = load({"objective": "grpo"}).config.objective
    assert objective.advantage.model_dump() == {"name": "group_zscore", "std": "sample", "eps": 1e-4}
    assert objective.surrogate.model_dump() == {"name": "clip", "low": 0.2, "high": 0.2, "dual": None}
    assert objective.aggregation.name == "sequence_mean"
    assert (objective.kl.estimator, objective.kl.place, objective.kl.beta) == ("k3", "loss", 0.04)
    assert objective.ratio == "token"


def test_dr_grpo_divides_by_no_std_and_no_length_of_its_own() -> None:
    config = load({"objective": "dr_grpo", "rollout": {"max_new_tokens": 77}}).config
    assert config.objective.advantage.model_dump() == {"name": "group_mean"}
    assert config.objective.aggregation.model_dump() == {"name": "constant", "length": 77}
    assert config.objective.kl.beta == 0.0


def test_the_preset_that_is_the_default_equals_the_defaults() -> None:
    from groupwise.config import RunConfig

    assert load({}).config == load({"objective": "grpo"}).config
    assert load({}).config.objective == RunConfig().objective


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="there is no preset 'grop': did you mean 'grpo'"):
        load({"objective": "grop"})
