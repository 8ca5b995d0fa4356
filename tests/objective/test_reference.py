"""The package's loss against the slow second writing of it, in value and in gradient."""

import pytest

from tests.objective.batches import OnPackage, random_batch
from tests.reference import objective as reference
from tests.reference.objective import Settings

SETTINGS = [
    Settings(aggregation=aggregation, **choices)
    for aggregation in ("sequence_mean", "token_mean", "constant", "sequence_sum")
    for choices in (
        {
            "ratio": "sequence_product",
            "surrogate": "policy_gradient",
            "weight": "ratio",
            "advantage": "leave_one_out",
        },
        {
            "ratio": "sequence_geometric",
            "advantage": "rank",
            "kl": "k3_ratio",
            "beta": 0.2,
            "cap_token": 0.02,
        },
        {
            "surrogate": "cispo",
            "bound": 1.2,
            "advantage": "sign",
            "kl": "k1",
            "beta": 0.2,
            "cap_rollout": 0.1,
        },
        {
            "surrogate": "policy_gradient",
            "advantage": "token_whitening",
            "discount": 0.9,
            "kl": "k2",
            "beta": 0.3,
            "cap_token": 0.05,
            "cap_rollout": 0.1,
        },
        {"advantage": "batch_zscore", "kl": "k2", "beta": 0.1, "ratio": "sequence_geometric", "dual": 2.0},
        {},
        {"advantage": "group_mean", "beta": 0.04},
        {
            "std": "population",
            "eps": 1e-6,
            "high": 0.28,
            "dual": 3.0,
            "beta": 0.5,
            "entropy_bonus": 0.01,
            "cap": 2.0,
        },
    )
]


def name_of(settings: Settings) -> str:
    return f"{settings.aggregation}-{settings.advantage}-{settings.ratio}-{settings.std}-{settings.kl}"


@pytest.mark.parametrize("settings", SETTINGS, ids=name_of)
@pytest.mark.parametrize("seed", range(5))
def test_the_loss_is_the_same_to_the_twelfth_digit(settings: Settings, seed: int) -> None:
    batch = random_batch(seed, far=0.1 * (seed == 4))
    expected, parts = reference.loss(batch, settings)
    package = OnPackage(batch, settings)
    terms = package.loss()
    assert terms.loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    right = [row for group in parts.advantages for row in group]
    for got, expected_T in zip(package.advantages, right, strict=True):
        assert got == pytest.approx(expected_T, rel=1e-10, abs=1e-12)
    assert int(terms.clamped_M.sum()) == parts.clamped
    assert int(terms.kl_capped_M.sum()) == parts.capped


def test_the_batches_reach_every_branch() -> None:
    clamped = clipped = capped = 0
    empty = flat = False
    for seed in range(5):
        batch = random_batch(seed, far=0.1 * (seed == 4))
        _, parts = reference.loss(batch, Settings())
        clamped += parts.clamped
        clipped += parts.clipped
        empty |= any(not any(response.trainable) for group in batch for response in group)
        flat |= any(not any(a for row in group for a in row) for group in parts.advantages)
        for settings in SETTINGS:
            capped += reference.loss(batch, settings)[1].capped
    assert clamped > 5
    assert clipped > 50
    assert capped > 100
    assert empty
    assert flat


@pytest.mark.parametrize("settings", [s for s in SETTINGS if s.surrogate != "cispo"], ids=name_of)
def test_the_gradient_is_what_central_differences_give(settings: Settings) -> None:
    batch = random_batch(7, groups=2, size=7, longest=6)
    package = OnPackage(batch, settings)
    package.loss().loss.backward()
    got = package.gradients()
    rows = [response for group in batch for response in group]
    h = 1e-5
    compared = 0
    for kind, offset in (("policy", 0), ("entropy", len(rows))):
        for i in range(len(rows)):
            for t in range(len(rows[i].policy)):
                sides = []
                values = getattr(rows[i], kind)
                held = values[t]
                for step in (h, -h):
                    values[t] = held + step
                    sides.append(reference.loss(batch, settings)[0])
                values[t] = held
                numeric = (sides[0] - sides[1]) / (2 * h)
                # The error of a central difference: h^2/6 of the third derivative (1e-10 here), and rounding over h.
                assert abs(got[offset + i][t] - numeric) < 1e-9, (kind, i, t)
                compared += numeric != 0
    assert compared >= 10
