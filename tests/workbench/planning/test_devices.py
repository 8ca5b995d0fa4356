import pytest
import torch

from groupwise.errors import ConfigError
from groupwise.workbench.planning.devices import GIB, Layout, card, present, processor, published


@pytest.mark.parametrize("name", published()["cards"])
def test_every_card_is_whole(name: str) -> None:
    found = card(name)
    assert found.kind == "cuda"
    assert 10 * GIB < found.memory < 200 * GIB
    assert found.float32_flops < (found.bfloat16_flops or 1e20)
    assert found.link < found.bandwidth


def test_a_card_is_found_in_any_spelling_and_the_nearest_is_named() -> None:
    assert card("H200") == card("h200")
    assert card("A100_40") == card("a100-40")
    with pytest.raises(ConfigError, match="did you mean h100"):
        card("h10")
    with pytest.raises(ConfigError, match="no card is called 'banana'"):
        card("banana")


def test_this_processor_is_measured() -> None:
    found = processor()
    assert found.kind == "cpu"
    assert found.memory > GIB
    assert found.float32_flops > 1e8
    assert found.bandwidth > 1e8
    if not torch.cuda.is_available():
        assert present().kind == "cpu"


def test_a_layout_counts_its_processes() -> None:
    assert Layout(gpus=8, nodes=4).processes == 32
