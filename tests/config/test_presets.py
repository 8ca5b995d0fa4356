import re

import pytest

from groupwise.config import load, presets
from groupwise.config.keys import leaves
from groupwise.errors import ConfigError


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_states_every_choice_and_cites_its_paper(name: str) -> None:
    stated = {key for key, _ in leaves(presets.load(name)["objective"])}
    config = load({"objective": name}).config
    assert config.objective.preset == name
    resolved = config.objective.model_dump()
    left_open = {key for key, _ in leaves(resolved)} - stated
    # Whose log-probs are the old ones depends on the engine, not on the algorithm; no preset has these recipes.
    recipes = {"filter", "teaching", "kl.reference_dropout"}
    assert left_open == {"preset", "old_source", "correction_cap"} | recipes
    assert "max_redraws" in presets.load(name)["rollout"]  # so that taking another preset takes it back
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


@pytest.mark.parametrize(
    ("name", "says"),
    [
        # DAPO, sections 3.1 to 3.4: bounds 0.2 and 0.28, token mean, no KL, a buffer of a fifth of the limit.
        ("dapo", "group_zscore token clip:0.2,0.28 token_mean 0 drop penalise x16"),
        # Back to Basics: leave-one-out, the response as one action, KL in the reward.
        ("rloo", "leave_one_out sequence_product policy_gradient sequence_mean k1/reward:0.05 keep keep x1"),
        ("reinforce_plus_plus", "token_whitening token clip:0.2,0.2 token_mean k1/reward:0.01 keep keep x1"),
        ("reinforce_sign", "sign token clip:0.2,0.2 token_mean k3/loss:0.05 keep keep x1"),
        # GSPO, section 5.1: 3e-4 and 4e-4, four mini-batches.
        ("gspo", "group_zscore sequence_geometric clip:0.0003,0.0004 sequence_mean 0 keep keep x4"),
        ("cispo", "group_zscore token cispo token_mean 0 keep keep x16"),
    ],
)
def test_presets_are_the_published_ones(name: str, says: str) -> None:
    config = load({"objective": name}).config
    o, kl = config.objective, config.objective.kl
    bounds = o.surrogate.settings
    surrogate = o.surrogate.name + (f":{bounds['low']:g},{bounds['high']:g}" if "low" in bounds else "")
    leash = f"{kl.estimator}/{kl.place}:{kl.beta:g}" if kl.beta else "0"
    updates = f"x{config.training.mini_batches * config.training.updates_per_batch}"
    found = [
        o.advantage.name,
        o.ratio,
        surrogate,
        o.aggregation.name,
        leash,
        o.zero_spread,
        o.truncated,
        updates,
    ]
    assert " ".join(found) == says


def test_ppo_has_a_critic_and_its_kl_in_the_reward_of_each_token() -> None:
    config = load({"objective": "ppo"}).config
    assert config.objective.advantage.model_dump() == {
        "name": "gae",
        "gamma": 1.0,
        "lam": 0.95,
        "whiten": True,
    }
    assert config.objective.aggregation.name == "token_mean"
    assert (config.objective.kl.estimator, config.objective.kl.place, config.objective.kl.beta) == (
        "k1",
        "reward",
        0.02,
    )
    assert (config.critic.backbone, config.critic.clip) == ("own", 0.2)
    assert config.training.updates_per_batch == 4
    assert load({"objective": "ppo", "rollout": {"group_size": 1}}).config.rollout.group_size == 1


def test_remax_compares_with_the_greedy_response_alone() -> None:
    objective = load({"objective": "remax", "rollout": {"group_size": 1}}).config.objective
    assert objective.advantage.model_dump() == {"name": "greedy_baseline"}
    assert objective.surrogate.model_dump() == {"name": "policy_gradient", "weight": "logprob"}
    assert objective.aggregation.name == "sequence_sum"
    assert (objective.kl.estimator, objective.kl.place) == ("k1", "reward")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"critic": {"clip": 0.1}}, "critic.clip is set, but the advantage group_zscore asks for no values"),
        ({"objective": "remax", "critic": {"warmup_steps": 1}}, "the advantage greedy_baseline asks for no values"),
        ({"objective": "ppo", "critic": {"clip": 0}}, "critic.clip: 0 should be greater than 0"),
        ({"objective": "ppo", "critic": {"backbone": "shared"}}, "critic.backbone: 'shared' should be 'own'"),
        ({"objective": "ppo", "critic": {"learning_rat": 1}}, "did you mean critic.learning_rate?"),
        ({"objective": "ppo", "critic": {"warmup_steps": -1}}, "greater than or equal to 0"),
        ({"objective": {"preset": "ppo", "advantage": {"gamma": 1.5}}}, "gamma: 1.5 should be less than or equal to 1"),
        ({"objective": {"preset": "ppo", "advantage": {"lam": -0.1}}}, "lam: -0.1 should be greater than"),
        ({"objective": {"preset": "ppo", "advantage": {"whiten": "maybe"}}}, "whiten: 'maybe' is neither"),
        ({"objective": {"preset": "ppo", "advantage": {"lambda": 1}}}, "has no setting 'lambda'; did you mean 'lam'?"),
        ({"method": "dpo", "critic": {"clip": 0.1}}, "critic.clip is set, but the method is dpo"),
    ],
)  # fmt: skip
def test_wrong_settings_of_the_critic_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(given)
    assert said in str(caught.value)


def test_the_preset_that_is_the_default_equals_the_defaults() -> None:
    from groupwise.config import RunConfig

    assert load({}).config == load({"objective": "grpo"}).config
    assert load({}).config.objective == RunConfig().objective


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="there is no preset 'grop': did you mean 'grpo'"):
        load({"objective": "grop"})
