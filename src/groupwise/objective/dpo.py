"""Direct preference optimisation: the loss of a chosen and a rejected response to one prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

FORMULA = "-log sigmoid(m),  m = {beta:g} [(policy - reference) chosen - (policy - reference) rejected]"
FORMULA_SMOOTHED = "-(1 - {label_smoothing:g}) log sigmoid(m) - {label_smoothing:g} log sigmoid(-m)"

TIE = 1e-4
"""Log-ratios in nats that are no further apart than this are equal: the sums of a few hundred float32 log-probs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceTerms:
    """The loss and what it was made of. Everything but `loss_P` is detached, shape [P]."""

    loss_P: Any
    """With gradient."""
    chosen_reward_P: Any
    """beta (policy - reference) of the chosen response, the reward that the policy implies."""
    rejected_reward_P: Any
    """The same of the rejected one."""
    right_P: Any
    """1 where the chosen response has the higher implied reward, 0 where the rejected has, one half for a tie."""


def dpo(
    chosen_P: Tensor,
    rejected_P: Tensor,
    reference_chosen_P: Tensor,
    reference_rejected_P: Tensor,
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
) -> PreferenceTerms:
    """-(1 - s) log sigmoid(m) - s log sigmoid(-m), with m = beta [(chosen - its reference) - (rejected - its)].

    Source: DPO (Rafailov et al. 2023, arXiv 2305.18290), equation 7; label smoothing is the conservative form of
    Mitchell 2023, "A note on DPO with noisy preferences".

    Assumption: preferences follow Bradley and Terry's model, a share s of them with the sides exchanged.

    Edge case: a policy that still is the reference has m = 0, the loss log 2, and a gradient. Far apart, -log sigmoid
    is linear and does not overflow.

    Args:
        chosen_P: summed log-prob of each chosen response under the policy, with gradient, shape [P], nats.
        rejected_P: of each rejected one.
        reference_chosen_P: of each chosen response under the reference.
        reference_rejected_P: of each rejected one.
        beta: how strongly the policy is held to the reference.
        label_smoothing: share of the pairs taken to be the wrong way round, from 0 to below one half.

    Returns:
        The loss of each pair and its parts.
    """
    chosen_ratio_P = chosen_P - reference_chosen_P
    rejected_ratio_P = rejected_P - reference_rejected_P
    apart_P = chosen_ratio_P - rejected_ratio_P
    margin_P = beta * apart_P
    zero_P = margin_P.new_zeros(margin_P.shape)
    loss_P = zero_P.logaddexp(-margin_P)  # -log sigmoid(m) = log(1 + exp(-m))
    if label_smoothing != 0:
        loss_P = (1.0 - label_smoothing) * loss_P + label_smoothing * zero_P.logaddexp(margin_P)
    apart_P = apart_P.detach()
    right_P = ((apart_P > TIE).to(apart_P.dtype) + (apart_P >= -TIE).to(apart_P.dtype)) / 2
    return PreferenceTerms(
        loss_P=loss_P,
        chosen_reward_P=(beta * chosen_ratio_P).detach(),
        rejected_reward_P=(beta * rejected_ratio_P).detach(),
        right_P=right_P,
    )
