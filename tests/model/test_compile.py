"""torch.compile of the layers: what is captured, and when it is captured again.

The C++ compiler behind it takes minutes on a busy machine and is not ours to test, so it is left out.
"""

import copy
import functools
from collections.abc import Callable

import pytest
import torch

from groupwise.model.load import Policy
from groupwise.model.logprobs import TokenLogprobs
from tests.model.families import gradient_of, random_families, relative

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch's own compiler
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


def test_compiled_layers_give_the_same_gradient_and_are_not_compiled_for_every_shape(
    build_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    model = build_policy().model
    plain = TokenLogprobs(copy.deepcopy(model), longest_tokens=64)
    torch._dynamo.utils.counters.clear()
    scorer = TokenLogprobs(model, longest_tokens=64, compiled=True)
    graphs = []
    for seed, shape in enumerate(
        [((5, (3, 1, 7)), (11, (4, 4))), ((6, (9, 2)),), ((3, (4, 4, 5)), (7, (2, 8)), (4, (3,)))]
    ):
        families = random_families(shape, seed=seed)
        right = gradient_of(plain.model, *plain(families, temperature=0.7))
        assert relative(gradient_of(model, *scorer(families, temperature=0.7)), right) < 1e-4
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs[0] > 0, "nothing was compiled"
    assert graphs[2] == graphs[1], "a third shape was compiled again"
    with torch.no_grad():
        families = random_families()
        assert torch.equal(scorer(families, temperature=1.0)[0], plain(families, temperature=1.0)[0])
