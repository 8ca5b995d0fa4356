from types import ModuleType

import pytest
import torch

from groupwise.objective.surrogates import clip as module
from groupwise.objective.surrogates.clip import clip, outside

DOUBLE = torch.float64


def tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=DOUBLE)


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    ratio = tensor([1.5, 1.5, 0.5, 0.5, 1.1, 0.9, 1.0])
    advantages = tensor([1.0, -1.0, 1.0, -1.0, 2.0, -2.0, 3.0])
    # min(1.5, 1.2); min(-1.5, -1.2); min(0.5, 0.8); min(-0.5, -0.8); 1.1 x 2; 0.9 x -2; 1 x 3
    got = module.clip(ratio, advantages, torch.zeros(7, dtype=DOUBLE))
    torch.testing.assert_close(got, tensor([1.2, -1.5, 0.5, -0.8, 2.2, -1.8, 3.0]), rtol=0, atol=1e-15)
    # Each bound by itself: low 0.1 and high 0.28 clip to [0.9, 1.28]
    # min(1.5, 1.28) x 2 = 2.56; 1.2 is inside: 2.4; min(0.5, 0.9) x -2: -1.8 is below -1.0; 0.95 is inside: -1.9
    got = module.clip(
        tensor([1.5, 1.2, 0.5, 0.95]),
        tensor([2.0, 2.0, -2.0, -2.0]),
        torch.zeros(4, dtype=DOUBLE),
        low=0.1,
        high=0.28,
    )
    torch.testing.assert_close(got, tensor([2.56, 2.4, -1.8, -1.9]), rtol=0, atol=1e-15)
    # Dual clip at 3: rho 5, A -2 gives min(-10, -2.4) = -10, held at 3 x -2 = -6; rho 2: -4 is above -6 and stays;
    # A = +2 is untouched by it: min(10, 2.4) = 2.4; and so is A = 0
    got = module.clip(
        tensor([5.0, 2.0, 5.0, 5.0]), tensor([-2.0, -2.0, 2.0, 0.0]), torch.zeros(4, dtype=DOUBLE), dual=3.0
    )
    torch.testing.assert_close(got, tensor([-6.0, -4.0, 2.4, 0.0]), rtol=0, atol=1e-15)
    # Outside: below 0.8 with A < 0 (the fourth), above 1.28 with A > 0 (the first); not the other two
    low, high = module.outside(
        tensor([1.5, 1.5, 0.5, 0.5, 1.25, 0.85]),
        tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]),
        low=0.2,
        high=0.28,
    )
    assert low.tolist() == [False, False, False, True, False, False]
    assert high.tolist() == [True, False, False, False, False, False]
    assert module.width(low=0.2, high=0.28) == 0.2
    assert module.width(low=4e-4, high=3e-4) == 3e-4


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def gradient(ratio: list[float], advantages: list[float], **settings: float) -> list[float]:
    rho = tensor(ratio).requires_grad_()
    clip(rho, tensor(advantages), torch.zeros_like(rho), **settings).sum().backward()
    return rho.grad.tolist()


def test_a_token_pushed_further_outside_has_no_gradient() -> None:
    # d/drho is A inside the bounds and on the side that the advantage pushes back from, 0 beyond them.
    assert gradient([1.5, 1.5, 0.5, 0.5, 1.0], [1.0, -1.0, 1.0, -1.0, 3.0]) == [0.0, -1.0, 1.0, 0.0, 3.0]


def test_beyond_the_dual_bound_there_is_no_gradient() -> None:
    assert gradient([5.0, 2.0], [-2.0, -2.0], dual=3.0) == [0.0, -2.0]


def test_outside_is_where_the_gradient_is_gone() -> None:
    generator = torch.Generator().manual_seed(0)
    ratio = torch.rand(1000, generator=generator, dtype=DOUBLE) * 2
    advantages = torch.randn(1000, generator=generator, dtype=DOUBLE)
    low, high = outside(ratio, advantages, low=0.2, high=0.28)
    gone = torch.tensor(gradient(ratio.tolist(), advantages.tolist(), low=0.2, high=0.28)) == 0
    assert torch.equal(low | high, gone)
    assert 100 < gone.sum() < 900


def test_no_advantage_gives_exactly_nothing() -> None:
    assert clip(tensor([0.1, 1.0, 9.0]), tensor([0.0] * 3), tensor([0.0] * 3), dual=3.0).tolist() == [0.0] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_type_of_the_numbers_is_kept(dtype: torch.dtype) -> None:
    ratio, advantages = torch.tensor([5.0], dtype=dtype), torch.tensor([-1.0], dtype=dtype)
    assert clip(ratio, advantages, ratio, dual=3.0).dtype == dtype
