"""Sizes by configuration alone, against published counts and models that are built."""

from pathlib import Path

import pytest
import torch

from groupwise.config.model import LoraConfig, ModelConfig
from groupwise.errors import ModelError
from groupwise.model.lora import attach
from groupwise.model.tiny import build_tiny, write_tiny
from groupwise.workbench.planning.devices import published
from groupwise.workbench.planning.shapes import Linear, of_config, shape_of
from tests.model.parameters import trainable_parameters

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
MODELS = {row["ids"][0]: row for row in published()["models"]}


@pytest.mark.parametrize("name", MODELS)
def test_published_models_have_as_many_weights_as_their_model_cards_say(name: str) -> None:
    assert shape_of(ModelConfig(name=name), Path.cwd()).weights == MODELS[name]["weights"]


def test_qwen_7b_by_hand() -> None:
    shape = shape_of(ModelConfig(name="qwen/qwen2.5-7b-instruct"), Path.cwd())  # case does not matter
    # Queries 28 heads x 128 = 3584, keys 4 x 128 = 512; a layer's products:
    # 2 x 3584 x 3584 + 2 x 3584 x 512 + 3 x 3584 x 18944 = 25,690,112 + 3,670,016 + 203,685,888 = 233,046,016.
    assert (shape.query_width, shape.key_width, shape.repeat) == (3584, 512, 7)
    assert shape.linear_weights == 28 * 233_046_016
    assert (shape.gated, shape.tied, shape.norms) == (True, False, (3584, 3584))
    # Rank 16: q, o 16 x 7168 each; k, v 16 x 4096 each; gate, up, down 16 x 22528 each; 28 layers.
    # 16 x (2 x 7168 + 2 x 4096 + 3 x 22528) = 1,441,792; x 28 = 40,370,176.
    assert shape.adapter_weights(LoraConfig(rank=16)) == 40_370_176


def test_norms_of_heads_are_counted_for_every_head() -> None:
    shape = shape_of(ModelConfig(name="Qwen/Qwen3-0.6B"), Path.cwd())
    # 16 query heads and 8 key heads of 128.
    assert sorted(shape.norms) == [1024, 1024, 1024, 2048]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("targets", ["all-linear", None])
def test_a_folder_is_as_the_model_that_is_built_from_it(
    architecture: str, targets: str | None, tmp_path: Path
) -> None:
    folder = write_tiny(tmp_path / "m", architecture=architecture, hidden=32, layers=3)  # type: ignore[arg-type]
    shape = shape_of(ModelConfig(name="m"), tmp_path)
    model, _ = build_tiny(architecture=architecture, hidden=32, layers=3)  # type: ignore[arg-type]
    assert shape.weights == sum(p.numel() for p in model.parameters())
    assert (shape.layers, shape.hidden, shape.tied) == (3, 32, True)
    one = shape.linears[0].name
    lora = LoraConfig.model_validate({"rank": 4, "target_modules": targets or [one]})
    adapted = attach(model, lora, seed=0)
    assert shape.adapter_weights(lora) == sum(p.numel() for _, p in trainable_parameters(adapted))
    assert folder.is_dir()


def test_layers_that_read_the_same_tensor_keep_it_once() -> None:
    shape = shape_of(ModelConfig(name="tiny"), Path.cwd())
    # D 64, Q 64, I 128: shared 64 + 64 + 64 + 128 = 320; apart 3 x 64 + 64 + 2 x 64 + 128 = 512.
    assert shape.read(shape.linears, apart=False) == 320
    assert shape.read(shape.linears, apart=True) == 512
    assert shape.read((Linear(name="k_proj", inputs=64, outputs=32),), apart=False) == 64


def test_nothing_is_held() -> None:
    before = torch.get_default_device()
    assert shape_of(ModelConfig(name="meta-llama/Llama-3.1-70B"), Path.cwd()).weights > 7e10
    assert torch.get_default_device() == before


def test_a_mixture_of_experts_is_refused() -> None:
    from transformers import MixtralConfig

    with pytest.raises(ModelError, match="a mixture of 8 experts"):
        of_config("some/mixtral", MixtralConfig())


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelError, match=r"there is no .*/nowhere"):
        shape_of(ModelConfig(name="./nowhere"), Path.cwd())
