"""Settings that do not fit together are refused before anything is loaded: cases a05, l02, l04."""

import pytest

from groupwise.config import load
from groupwise.errors import ConfigError

MISFITS = [
    # Case a05: one rollout has nobody to be compared with.
    ({"rollout": {"group_size": 1}}, "rollout.group_size is 1, but the advantage group_zscore compares"),
    (
        {"rollout": {"group_size": 1}, "objective": "dr_grpo"},
        "rollout.group_size is 1, but the advantage group_mean compares",
    ),
    # Case l02: the product is said with what it counts.
    (
        {"rollout": {"prompts_per_step": 2, "group_size": 3}, "training": {"mini_batches": 7}},
        "training.mini_batches is 7, but a step has only 2 prompts x 3 rollouts = 6 rollouts",
    ),
    ({"model": {"dtype": "bfloat16"}}, "most small updates round to nothing"),
    # Case l04: an option that would have no effect in this combination.
    ({"lora": {}, "reference": {"device": "cpu"}}, "with lora the reference is the policy's own weights"),
    (
        {"objective": {"kl": {"beta": 0}}, "reference": {}},
        "objective.kl.beta is 0, so no reference is loaded",
    ),
    ({"memory": {"quantise": "nf4"}}, "4-bit weights take no gradient; add lora"),
    (
        {"memory": {"quantise": "nf4"}, "lora": {}, "distributed": {"strategy": "fsdp2"}},
        "4-bit weights are not divided among processes",
    ),
    (
        {"memory": {"quantise": "nf4"}, "lora": {}, "training": {"compile": True}},
        "does not see through 4-bit layers",
    ),
    ({"memory": {"quantise_scales": False}}, "quantise is null, so there are no scales"),
    ({"memory": {"quantise": "int3"}, "lora": {}}, "memory.quantise"),
    ({"memory": {"reference": "shared"}}, "the reference needs a copy of its own"),
    ({"memory": {"reference": "cpu"}, "lora": {}}, "the adapter off and takes no memory"),
    (
        {"memory": {"reference": "cpu"}, "objective": {"kl": {"beta": 0}}},
        "objective.kl.beta is 0, so no reference is loaded",
    ),
    (
        {"memory": {"reference": "cpu"}, "reference": {"device": "cpu"}},
        "reference.device 'cpu' has it compute there",
    ),
    (
        {"memory": {"reference": "cpu"}, "distributed": {"strategy": "fsdp2"}},
        "divides the reference among the devices already",
    ),
    (
        {"memory": {"reference": "cpu"}, "method": "dpo"},
        "the policy itself scores as the reference before its first update",
    ),
    (
        {"distributed": {"strategy": "zero3"}, "lora": {}},
        "divides weights that are all trained, but lora is set",
    ),
    (
        {"distributed": {"strategy": "zero3"}, "training": {"compile": True}},
        "(distributed.strategy is zero3); turn one of the two off",
    ),
    (
        {"rollout": {"engine": "vllm", "cache_megabytes": 99}},
        "is of the engine in_process, but rollout.engine is vllm",
    ),
    ({"rollout": {"vllm": {}}}, "rollout.vllm is set, but rollout.engine is in_process"),
    ({"rollout": {"overlap": 1}}, "samples from the very weights that are being trained"),
    (
        {"rollout": {"engine": "vllm", "overlap": 1}, "objective": {"old_source": "sampler"}},
        "rollouts are of weights one step old",
    ),
    ({"rollout": {"engine": "vllm", "vllm": {"base_url": "node7:8000"}}}, "is not an address"),
    ({"rollout": {"engine": "vllm", "vllm": {"base_url": "http://me@node7:8000"}}}, "user name or password"),
    (
        {"rollout": {"engine": "vllm", "vllm": {"base_url": "http://a:80", "port": 81}}},
        "port is of a server that the run starts",
    ),
    ({"rollout": {"top_p": 0.9}, "objective": {"old_source": "sampler"}}, "set old_source to auto"),
    ({"rollout": {"top_k": 5}, "objective": {"old_source": "sampler"}}, "set old_source to auto"),
    ({"rollout": {"min_p": 0.1}, "objective": {"old_source": "sampler"}}, "set old_source to auto"),
    ({"training": {"steps": 5, "epochs": 1}}, "give steps or epochs, not both"),
    ({"training": {"steps": 3, "warmup_steps": 5}}, "the learning rate would never reach its value"),
    ({"evaluate": {"samples": 4}}, "at temperature 0 all samples are the same"),
    ({"rewards": [{"name": "exact", "on_failure": "value"}]}, "failure_value goes with on_failure: value"),
    ({"rewards": [{"name": "exact", "failure_value": 0}]}, "failure_value goes with on_failure: value"),
    (
        {"rewards": [{"name": "exact", "label": "a"}, {"name": "exact", "label": "a"}]},
        "the label 'a' is given twice",
    ),
]


@pytest.mark.parametrize(("tree", "why"), MISFITS, ids=[why[:40] for _, why in MISFITS])
def test_misfits_are_named_with_a_remedy(tree: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tree)
    assert why in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    "tree",
    [
        {"rollout": {"group_size": 2, "prompts_per_step": 1}},
        {"rollout": {"group_size": 7, "prompts_per_step": 3}, "training": {"mini_batches": 21}},
        {"reference": {"device": "cpu"}},
        {"reference": {"dtype": "bfloat16"}, "memory": {"reference": "cpu"}},
        {"memory": {"quantise": "nf4", "reference": "shared"}, "lora": {}, "model": {"dtype": "bfloat16"}},
        {"lora": {"rank": 4}},
        {"rollout": {"top_p": 0.9}},
        {"rollout": {"top_p": 0.9}, "objective": {"old_source": "trainer"}},
        {"training": {"epochs": 0.5}},
        {"model": {"dtype": "bfloat16"}, "lora": {}},
        {"training": {"steps": 5, "warmup_steps": 5}},
        {"evaluate": {"samples": 4, "temperature": 0.7}},
        {"rewards": [{"name": "exact", "on_failure": "value", "failure_value": 0}]},
        {"rewards": [{"name": "exact", "weight": 0}, "numeric"]},
        {"rewards": [{"name": "exact", "weight": -1}]},
    ],
)
def test_what_fits_is_taken(tree: dict[str, object]) -> None:
    load(tree)
