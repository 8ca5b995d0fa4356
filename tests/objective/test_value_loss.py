from types import ModuleType

import pytest
import torch

from groupwise.objective import value_loss as module
from groupwise.objective.value_loss import value_loss


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def hand_worked(module: ModuleType) -> None:
    # V, V_old and R of five tokens, c = 0.2:
    #   1.1, 1.0, 2: inside; both squares 0.9^2 = 0.81, half 0.405
    #   1.5, 1.0, 2: moved 0.5 towards R; held 1.2, max(0.25, 0.64) / 2 = 0.32, no gradient
    #   0.5, 1.0, 2: moved 0.5 away from R; held 0.8, max(2.25, 1.44) / 2 = 1.125
    #   0.5, 1.0, 0: moved 0.5 towards R; held 0.8, max(0.25, 0.64) / 2 = 0.32, no gradient
    #   1.5, 1.0, 0: moved away; held 1.2, max(2.25, 1.44) / 2 = 1.125
    values = tensor(1.1, 1.5, 0.5, 0.5, 1.5).requires_grad_()
    old, targets = tensor(1, 1, 1, 1, 1), tensor(2, 2, 2, 0, 0)
    terms = module.value_loss(values, old, targets, clip=0.2)
    assert terms.loss_M.tolist() == pytest.approx([0.405, 0.32, 1.125, 0.32, 1.125], abs=1e-12)
    assert terms.clipped_M.tolist() == [False, True, False, True, False]
    terms.loss_M.sum().backward()
    # Where there is a gradient it is V - R; inside, both squares are one, and so are their gradients.
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([-0.9, 0.0, -1.5, 0.0, 1.5], abs=1e-12)
    plain = module.value_loss(values, old, targets, clip=None)
    # Halves of 0.81, 0.25, 2.25, 0.25, 2.25.
    assert plain.loss_M.tolist() == pytest.approx([0.405, 0.125, 1.125, 0.125, 1.125], abs=1e-12)
    assert not plain.clipped_M.any()
    # A value on its target is 0, with or without a clip, and nothing is clipped there.
    same = module.value_loss(tensor(3), tensor(3), tensor(3), clip=0.2)
    assert same.loss_M.tolist() == [0.0]
    assert same.clipped_M.tolist() == [False]
    on_it = module.value_loss(tensor(3), tensor(3), tensor(3), clip=None)
    assert on_it.clipped_M.tolist() == [False]


def test_hand_worked() -> None:
    hand_worked(module)


def reference(v: float, old: float, r: float, clip: float | None) -> float:
    if clip is None:
        return (v - r) ** 2 / 2
    held = min(max(v, old - clip), old + clip)
    return max((v - r) ** 2, (held - r) ** 2) / 2


@pytest.mark.parametrize("clip", [None, 0.05, 0.2, 5.0])
def test_it_is_what_plain_python_says_gradient_included(clip: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    values, old, targets = torch.randn(3, 40, generator=generator, dtype=torch.float64)
    old = values + 0.2 * old
    leaf = values.clone().requires_grad_()
    terms = value_loss(leaf, old, targets, clip=clip)
    terms.loss_M.sum().backward()
    assert leaf.grad is not None
    h = 1e-6
    for i in range(40):
        v, o, r = float(values[i]), float(old[i]), float(targets[i])
        assert terms.loss_M[i].item() == pytest.approx(reference(v, o, r, clip), rel=1e-12)
        numeric = (reference(v + h, o, r, clip) - reference(v - h, o, r, clip)) / (2 * h)
        assert leaf.grad[i].item() == pytest.approx(numeric, abs=1e-8)
        assert bool(terms.clipped_M[i]) == (numeric == 0)
    if clip in (0.05, 0.2):
        assert 0 < int(terms.clipped_M.sum()) < 40


def test_a_wide_clip_is_none() -> None:
    values, old, targets = tensor(1, 2), tensor(0, 5), tensor(3, 3)
    wide, none = value_loss(values, old, targets, clip=100.0), value_loss(values, old, targets, clip=None)
    assert wide.loss_M.tolist() == none.loss_M.tolist()
