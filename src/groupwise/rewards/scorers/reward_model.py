"""A reward model: a network that was trained to say how good an answer is."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge

from groupwise.config.base import FromBase


def reward_model(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    *,
    model: Annotated[str, FromBase()] = "",
    revision: str | None = None,
    join: Literal["auto", "chat", "pair", "text"] = "auto",
    label: str | int | None = None,
    output: Literal["logit", "probability"] = "logit",
    max_tokens: Annotated[int, Ge(1)] | None = None,
    batch_tokens: Annotated[int, Ge(1)] = 16384,
    device: str = "auto",
    dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    bits: Literal[4, 8] | None = None,
    trust_remote_code: bool = False,
) -> list[Any]:
    """The score of a transformers sequence-classification model for the conversation that a completion ends.

    The prompt is part of what it reads, joined with the completion as that model was trained: under `chat` by its own
    chat template, under `pair` as two segments, under `text` as one text. `auto` is `chat` for a tokenizer with a
    template, else `pair`. A text prompt is a user's turn under `chat`; the turns of a chat prompt are lines otherwise.

    A score is that of transformers for the row alone, whatever is in the batch beside it, but for float error: rows are
    sorted by length, padded on the right and masked, and where the model states no pad token an id stands in that no
    row holds.

    Edge cases: a row longer than the model can read, or than `max_tokens`, fails by itself; nothing is cut off, since
    a cut answer would be judged as if it were whole. A folder without a classification head is refused: transformers
    would fill it with random numbers.

    Args:
        prompts: text or messages, [N].
        completions: text or messages, [N].
        model: folder, relative to the configuration, or hub id.
        revision: of a hub id.
        join: how prompt and completion become one input.
        label: which output, by name or number, of a model that has several.
        output: the raw logit, or its probability: the sigmoid of a single output, the softmax of several.
        max_tokens: longest input; None for what the model states.
        batch_tokens: most tokens in a forward pass, padding included; one row is always taken.
        device: auto, cpu, cuda, cuda:1 or mps; it may be another than the policy's.
        dtype: of the weights.
        bits: 8 or 4 for quantised weights, by bitsandbytes (`pip install 'groupwise[quant]'`).
        trust_remote_code: run Python code that comes with the model.

    Raises:
        ValueError: settings do not fit, or bitsandbytes is not there.
        ModelError: no such model, it cannot be read, or it is no sequence-classification model.
        ConfigError: the device is not there, or a model with several outputs needs `label`.
    """
    if not model.strip():
        raise ValueError("model is missing; give the folder or hub id of a sequence-classification model")
    if bits is not None and importlib.util.find_spec("bitsandbytes") is None:
        raise ValueError(f"bits is {bits}, but bitsandbytes is not installed; pip install 'groupwise[quant]'")
    from groupwise.rewards.sequence_scorer import find_classifier, load_scorer

    if not completions:
        find_classifier(model, revision)
        return []
    scorer = load_scorer(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        bits=bits,
        trust_remote_code=trust_remote_code,
    )
    return scorer.score(
        prompts,
        completions,
        join=join,
        label=label,
        output=output,
        max_tokens=max_tokens,
        batch_tokens=batch_tokens,
    )
