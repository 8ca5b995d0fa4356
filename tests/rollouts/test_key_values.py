import math

import numpy as np
import pytest
import torch
from torch import Tensor

from groupwise.rollouts.key_values import Decode, Prefill

CPU = torch.device("cpu")
LENGTHS = (4, 1, 6)


def written_down(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
    """One token's heads [heads, D] over keys [key heads, S, D]: each query head in a loop of its own."""
    heads, key_heads = query.shape[0], keys.shape[0]
    out = []
    for head in range(heads):
        mine = head // (heads // key_heads)
        weights = (keys[mine] @ query[head] * scaling).softmax(0)
        out.append(weights @ values[mine])
    return torch.stack(out)


@pytest.mark.parametrize(
    ("heads", "key_heads", "key_size", "value_size"),
    [(4, 4, 8, 8), (4, 2, 8, 8), (6, 1, 8, 8), (4, 2, 12, 8)],  # the last as in multi-head latent attention
)
def test_prompts_once_rows_after(heads: int, key_heads: int, key_size: int, value_size: int) -> None:
    """Ragged prompts, several rows of each, then steps between which rows leave, a prompt's last one among them, and
    one parts into two."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    prefill = Prefill([np.arange(n, dtype=np.int32) for n in LENGTHS], CPU)
    assert prefill.token_ids_S.tolist() == [0, 1, 2, 3, 0, 0, 1, 2, 3, 4, 5]
    assert prefill.positions_S.tolist() == prefill.token_ids_S.tolist()
    assert prefill.last_P.tolist() == [3, 4, 10]
    query, key, value = (
        random(heads, 11, key_size),
        random(key_heads, 11, key_size),
        random(key_heads, 11, value_size),
    )
    out = prefill.attend(0, query, key, value, 0.3)
    starts = (0, 4, 5)
    for start, length in zip(starts, LENGTHS, strict=True):
        for t in range(start, start + length):
            right = written_down(query[:, t], key[:, start : t + 1], value[:, start : t + 1], 0.3)
            assert (out[t] - right).abs().max() < 1e-12

    rows = [0, 0, 0, 1, 2, 2]  # the prompt of each
    decode = Decode(prefill, np.array(rows), capacity=4)
    assert decode.longest_tokens == 10
    own_keys: list[list[Tensor]] = [[] for _ in rows]
    own_values: list[list[Tensor]] = [[] for _ in rows]
    alive = list(range(len(rows)))
    for step, parents in enumerate(([0, 1, 2, 3, 4, 5], [0, 2, 2, 3, 4, 5], [0, 2, 5], [0, 1, 2])):
        if step:  # indexes into the rows so far: the second step drops row 1 and parts row 2, the third drops a prompt
            decode.keep(np.array(parents))
            own_keys, own_values = ([list(held[i]) for i in parents] for held in (own_keys, own_values))
            rows = [rows[i] for i in parents]
            alive = list(range(len(rows)))
        decode.length += 1
        assert decode.positions_R.tolist() == [LENGTHS[rows[row]] + step for row in alive]
        query, key, value = (
            random(heads, len(alive), key_size),
            random(key_heads, len(alive), key_size),
            random(key_heads, len(alive), value_size),
        )
        out = decode.attend(0, query, key, value, 0.3)
        assert out.shape == (len(alive), heads, value_size)
        for i, row in enumerate(alive):
            own_keys[row].append(key[:, i])
            own_values[row].append(value[:, i])
            part = slice(starts[rows[row]], starts[rows[row]] + LENGTHS[rows[row]])
            keys = torch.cat([prefill_of(prefill.keys[0], rows[row]), torch.stack(own_keys[row], 1)], 1)
            values = torch.cat([prefill_of(prefill.values[0], rows[row]), torch.stack(own_values[row], 1)], 1)
            assert keys.shape[1] == part.stop - part.start + step + 1
            assert (out[i] - written_down(query[:, i], keys, values, 0.3)).abs().max() < 1e-12


def prefill_of(padded: Tensor, prompt: int) -> Tensor:
    """A prompt's own keys out of the padded ones, [key heads, tokens, D]."""
    assert (padded[:, prompt, LENGTHS[prompt] :] == 0).all()
    return padded[:, prompt, : LENGTHS[prompt]]


def test_hand_worked() -> None:
    prefill = Prefill([np.zeros(1, dtype=np.int32)], CPU)
    one = torch.ones(1, 1, 1)
    prefill.attend(0, one, math.log(3) * one, 4 * one, 1.0)
    decode = Decode(prefill, np.array([0]), capacity=1)
    decode.length = 1
    # Weights exp(1 ln 3) = 3 of the prompt's value 4 and exp(0) = 1 of the own 8: (3 * 4 + 1 * 8) / 4 = 5.
    out = decode.attend(0, one, 0 * one, 8 * one, 1.0)
    torch.testing.assert_close(out, torch.tensor([[[5.0]]]))


def test_a_short_prompt_beside_one_of_several_blocks() -> None:
    """Whole blocks of the kernel's keys are padding; in float32, and behind a stem that both share."""
    generator = torch.Generator().manual_seed(2)
    for stem in (0, 20):
        own = [np.arange(700, dtype=np.int32) + 5, np.arange(3, dtype=np.int32) + 9]
        prefill = Prefill([np.concatenate([np.zeros(stem, dtype=np.int32), ids]) for ids in own], CPU)
        assert prefill.stem == stem
        tokens = len(prefill.token_ids_S)
        key, value = (torch.randn(2, tokens, 8, generator=generator) for _ in range(2))
        prefill.attend(0, torch.randn(4, tokens, 8, generator=generator), key, value, 0.3)
        decode = Decode(prefill, np.array([0, 1, 1]), capacity=2)
        decode.length = 1
        query = torch.randn(4, 3, 8, generator=generator)
        new_key, new_value = (torch.randn(2, 3, 8, generator=generator) for _ in range(2))
        out = decode.attend(0, query, new_key, new_value, 0.3)
        for row, prompt in enumerate((0, 1, 1)):
            seen = [*range(stem), *range(prefill.slices[prompt].start, prefill.slices[prompt].stop)]
            keys, values = (
                torch.cat([held[:, seen], new[:, row : row + 1]], 1)
                for held, new in ((key, new_key), (value, new_value))
            )
            right = written_down(query[:, row].double(), keys.double(), values.double(), 0.3)
            assert (out[row] - right).abs().max() < 1e-5


def test_what_the_padding_holds_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(1)
    prefill = Prefill([np.arange(n, dtype=np.int32) for n in LENGTHS], CPU)
    key = torch.randn(2, 11, 4, generator=generator)
    prefill.attend(0, key, key, key, 1.0)
    query = torch.randn(2, 3, 4, generator=generator)

    def step() -> Tensor:
        decode = Decode(prefill, np.array([0, 1, 2]), capacity=1)
        decode.length = 1
        return decode.attend(0, query, query, query, 1.0)

    before = step()
    for prompt, length in enumerate(LENGTHS):
        prefill.keys[0][:, prompt, length:] = 1e6
        prefill.values[0][:, prompt, length:] = 1e6
    assert torch.equal(step(), before)
