import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch

from groupwise.errors import ConfigError
from groupwise.model import flex as module
from groupwise.model.flex import Tree, resolve_flex
from groupwise.model.load import Policy
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.shared_prefix import Family, PackedFamilies, _walk
from tests.model.families import random_families

CPU = torch.device("cpu")
# Eager FlexAttention is what a CPU can check the mask with; training compiles it, on GPUs.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")


def test_a_walk_by_hand() -> None:
    #   0 - 1 - 3        The walk is 0 1 3 4 2 5: node 2 is met fifth. Under 1 lie 1, 3 and 4, so it is left at 1 + 3.
    #   |    \- 4
    #   \ - 2       5 is a second root.
    enter, leave = _walk([-1, 0, 0, 1, 1, -1])
    assert enter.tolist() == [0, 1, 4, 2, 3, 5]
    assert leave.tolist() == [5, 4, 5, 3, 4, 6]


def test_who_sees_whom() -> None:
    prompt = np.array([7, 8], dtype=np.int32)
    responses = [np.array(ids, dtype=np.int32) for ids in ([1, 2, 3], [1, 4, 5], [6, 9])]
    families = [
        Family(prompt_ids=prompt, responses=responses),
        Family(prompt_ids=prompt, responses=responses[:1]),
    ]
    packed = PackedFamilies(families, CPU, torch.float32, flex=True)
    # Last tokens are not computed. In order: 7 8 | 1 2 4 6 and 7 8 | 1 2; the tree shares the first 1.
    assert packed.token_ids_S.tolist() == [7, 8, 1, 2, 4, 6, 7, 8, 1, 2]
    enter, leave = packed.tree.enter_S, packed.tree.leave_S
    visible = (enter[None, :] <= enter[:, None]) & (enter[:, None] < leave[None, :])
    expected = [
        "1.........",
        "11........",
        "111.......",
        "1111......",
        "111.1.....",  # 4 follows 1 as 2 does, and does not see 2
        "11...1....",
        "......1...",
        "......11..",
        "......111.",
        "......1111",
    ]
    assert ["".join("1" if x else "." for x in row) for row in visible.tolist()] == expected


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("alike", [True, False], ids=["tree", "rectangle"])
@pytest.mark.parametrize("common", [0, 9], ids=["", "stem"])
def test_one_kernel_for_the_row_gives_the_same(
    build_policy: Callable[..., Policy], architecture: str, alike: bool, common: int
) -> None:
    families = random_families(stem=common)
    if alike:
        stem = np.array([5, 6, 7, 8, 9], dtype=np.int32)
        families = [
            Family(prompt_ids=f.prompt_ids, responses=[np.concatenate([stem, r]) for r in f.responses])
            for f in families
        ]
    model = build_policy(architecture=architecture).model
    plain = TokenLogprobs(copy.deepcopy(model), longest_tokens=64)
    scorer = TokenLogprobs(model, longest_tokens=64, flex=True)
    assert scorer.shared, scorer.notice
    with torch.no_grad():
        right, _ = plain(families, temperature=1.0)
        found, _ = scorer(families, temperature=1.0)
    assert (found - right).abs().max() < 1e-4


def test_where_it_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda", 0)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: object())
    assert not resolve_flex("auto", CPU)
    assert resolve_flex("auto", cuda)
    assert resolve_flex("flex", cuda)
    assert not resolve_flex("sdpa", cuda)
    with pytest.raises(
        ConfigError, match=r"model\.attention is flex, but the model is on cpu.*use auto or sdpa"
    ):
        resolve_flex("flex", CPU)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert not resolve_flex("auto", cuda)
    with pytest.raises(ConfigError, match="Triton is not installed"):
        resolve_flex("flex", cuda)


def test_a_tree_of_one() -> None:
    tree = Tree(torch.tensor([0]), torch.tensor([1]))
    value = torch.randn(2, 1, 16)
    with torch.no_grad():
        out = tree.attend(torch.randn(4, 1, 16), torch.randn(2, 1, 16), value, 0.25)
    assert torch.allclose(out, value.repeat_interleave(2, 0).transpose(0, 1), atol=1e-6)
