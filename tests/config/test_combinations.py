from pathlib import Path
from typing import Any

import pytest

from groupwise.config import load
from groupwise.config.combinations import warnings


def found(**objective: Any) -> list[str]:
    sections = {k: objective.pop(k) for k in ("rollout", "training") if k in objective}
    return list(warnings(load({"objective": objective, **sections}).config))


def test_the_presets_are_free_of_them() -> None:
    from groupwise.config import presets

    for name in presets.names():
        assert warnings(load({"objective": name}).config) == {}, name


def test_k1_in_the_loss() -> None:
    assert found(kl={"estimator": "k1"}) == ["k1_in_loss"]
    assert found(kl={"estimator": "k1", "place": "reward"}) == []
    assert found(kl={"estimator": "k1", "beta": 0}) == []
    assert found(kl={"estimator": "k2"}) == []


def test_a_product_over_responses_that_is_reused() -> None:
    product = {"ratio": "sequence_product"}
    assert found(**product) == []
    for reuse in ({"mini_batches": 2}, {"updates_per_batch": 2}):
        assert found(**product, training=reuse) == ["sequence_ratio_unnormalised"]
        assert found(ratio="sequence_geometric", training=reuse) == []
    said = warnings(load({"objective": product, "training": {"mini_batches": 2}}).config)
    assert said["sequence_ratio_unnormalised"].startswith("sequence_ratio_unnormalised: objective.ratio is")


@pytest.mark.parametrize(("size", "expected"), [(2, ["small_group"]), (3, ["small_group"]), (4, [])])
def test_small_groups_where_rollouts_are_compared(size: int, expected: list[str]) -> None:
    assert found(rollout={"group_size": size}) == expected
    assert found(advantage="token_whitening", rollout={"group_size": size}) == []


def test_a_leash_without_a_reference() -> None:
    for key, value in (("cap_token", 2.0), ("cap_rollout", 9.0), ("place", "reward")):
        assert found(kl={"beta": 0, key: value}) == ["leash_without_reference"]
        assert found(kl={"beta": 0.1, key: value}) == []
    assert found(kl={"beta": 0}) == []


def test_the_page_lists_every_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "choosing.md").read_text(encoding="utf-8")
    names = {"k1_in_loss", "sequence_ratio_unnormalised", "small_group", "leash_without_reference"}
    names |= {"tiny_spread", "kl_capped"}
    assert [name for name in names if f"| `{name}`" not in page] == []
