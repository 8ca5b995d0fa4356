"""Sampling with the policy itself: each prompt computed once, its group decoded together, finished rollouts leave."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.errors import EngineError
from groupwise.model.attention import Layout, run_packed
from groupwise.model.load import Policy
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.precision import rounded
from groupwise.model.recorded import RecordedLayers
from groupwise.records import Prompt, Rollout, StopReason
from groupwise.rollouts.engine import Sampling
from groupwise.rollouts.key_values import Decode, Prefill
from groupwise.rollouts.sampling import draw, uniforms

_CACHES = ("cache", "past_key_values", "cache_params")
"""What models call their cache: transformers is renaming past_key_values; recurrent models differ."""
_NO_CACHE = "the model keeps no cache, so it cannot be sampled token by token; choose another model.name"
_PACKING_PAYS_AFTER = (
    5  # new tokens: 0.53 s to pack 134 M weights, 0.12 s saved per token of 96 rows (docs/log.md)
)
_COMPACT_AT = 0.8  # rows leave when no more than this share of them is still running


class InProcessEngine:
    """The embedded default engine. See `engine.Engine`."""

    def __init__(
        self, policy: Policy, scorer: TokenLogprobs, *, cache_megabytes: int, pack_weights: bool
    ) -> None:
        """Sample from the policy's own weights.

        Args:
            policy: model and tokenizer.
            scorer: knows whether the model takes packed tokens.
            cache_megabytes: memory for keys and values; prompts are sampled in chunks that fit.
            pack_weights: lay the weights out for the processor while sampling, see `model/sampling_weights.py`.
        """
        self.policy = policy
        self.scorer = scorer
        self.cache_megabytes = cache_megabytes
        self.pack_weights = pack_weights
        self.version = 0
        # Drawing adds up in float64, which Apple's GPUs do not have.
        self._draws_on = torch.device("cpu") if policy.device.type == "mps" else policy.device
        self._stop = torch.tensor(policy.stop_token_ids, device=self._draws_on)

    @property
    def same_as_trainer(self) -> bool:
        """True on the packed path, which runs the trainer's own layers on the trainer's own weights. On the plain path
        a cache of the model's own may compute otherwise than a full forward pass (some recurrent layers do), so its
        log-probs are not relied on."""
        return self.scorer.shared

    def load_weights(self, version: int, source: Any) -> None:
        """The weights are shared, so the version changes, and copies of them are stale."""
        self.version = version
        self.scorer.sampling_weights.let_go()

    def close(self) -> None:
        """Copies of the weights are let go; nothing else is held between calls."""
        self.scorer.sampling_weights.let_go()

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        group_size: int,
        seed: Sequence[int],
        greedy: bool = False,
    ) -> list[list[Rollout]]:
        """See `engine.Engine.generate`."""
        every = group_size + greedy
        context = self.policy.context_tokens
        for prompt in prompts:
            if len(prompt.token_ids) + sampling.max_new_tokens > context:
                raise EngineError(
                    f"prompt {prompt.id} has {len(prompt.token_ids)} tokens, and with {sampling.max_new_tokens} new "
                    f"ones it exceeds the model's {context}; lower rollout.max_new_tokens or prompts.max_prompt_tokens"
                )
        done: dict[tuple[int, int], Rollout] = {}
        model = self.policy.model
        training = model.training
        model.eval()
        try:
            laid_out = self.scorer.sampling_weights.laid_out(
                rows=len(prompts) * every if prompts and self._worth_packing(sampling) else None,
                precision=self.scorer.precision,
                keep=self.scorer.shards is None,
            )
            with self.scorer.gathered(), torch.inference_mode(), laid_out:
                for rows in self._chunks(prompts, sampling, every):
                    responses = _Responses(
                        [uniforms(seed, prompts[p].id, g, sampling.max_new_tokens) for p, g in rows],
                        sampling,
                        self._stop,
                        self._draws_on,
                        greedy_N=np.array([g == group_size for _, g in rows]),
                        limit_N=np.array([_limit(prompts[p], sampling) for p, _ in rows]),
                    )
                    if self.scorer.shared:
                        with self._hearing(prompts, rows, sampling) as heard:
                            self._decode_packed(prompts, rows, responses, heard)
                    else:
                        self._decode_plain(prompts, rows, responses)
                    for i, (p, g) in enumerate(rows):
                        done[p, g] = self._rollout(prompts[p], g, responses, i)
        finally:
            model.train(training)
        return [[done[p, g] for g in range(every)] for p in range(len(prompts))]

    def _worth_packing(self, sampling: Sampling) -> bool:
        """Packing costs what it saves in about five steps of decoding."""
        return self.pack_weights and sampling.max_new_tokens >= 2 * _PACKING_PAYS_AFTER

    def _chunks(
        self, prompts: Sequence[Prompt], sampling: Sampling, group_size: int
    ) -> list[list[tuple[int, int]]]:
        """(prompt, group index) pairs whose keys and values fit the budget together; alike lengths side by side."""
        budget = self.cache_megabytes * 2**20 // _bytes_per_token(self.policy.model)
        chunks: list[list[tuple[int, int]]] = []
        chunk: list[tuple[int, int]] = []
        longest = held = 0
        for p in sorted(range(len(prompts)), key=lambda p: (len(prompts[p].token_ids), p)):
            for g in range(group_size):
                new_prompt = not chunk or chunk[-1][0] != p
                longest = max(longest, len(prompts[p].token_ids))
                # Only packed rows share their prompt; on the plain path each has a copy of its own.
                held += new_prompt or not self.scorer.shared
                if chunk and held * longest + (len(chunk) + 1) * sampling.max_new_tokens > budget:
                    chunks.append(chunk)
                    chunk, held = [], 1
                    longest = len(prompts[p].token_ids)
                chunk.append((p, g))
        if chunk:
            chunks.append(chunk)
        return chunks

    def _decode_packed(
        self,
        prompts: Sequence[Prompt],
        rows: Sequence[tuple[int, int]],
        responses: _Responses,
        heard: RecordedLayers | None,
    ) -> None:
        responses.keep_mass = heard is not None and heard.masses
        order = list(dict.fromkeys(p for p, _ in rows))
        responses.stand_on(np.array([order.index(p) for p, _ in rows]))
        prefill = Prefill([prompts[p].token_ids for p in order], self.policy.device, self.scorer.precision)
        hidden = self._hidden(prefill.token_ids_S, prefill.positions_S, prefill, heard)[prefill.last_P]
        if heard is not None:
            places = heard.prompts(prefill.token_ids_S.numpy(), prefill.parents)
            places = places[prefill.last_P.numpy()]
        decode = Decode(prefill, np.arange(len(order)), capacity=responses.sampling.max_new_tokens)
        while True:
            goes_on = responses.take(self.scorer.logits(hidden))
            if heard is not None:
                at = places[responses.row_of]
                heard.predictions(
                    at, responses.drawn, responses.before_N3, responses.mass_RV, responses.row_of
                )
                responses.mass_RV = None  # the record keeps it, or nobody
            if not goes_on:
                break
            parents, token_R = responses.part()
            if parents is not None:
                decode.keep(parents)
            decode.length += 1
            hidden = self._hidden(token_R.to(self.policy.device), decode.positions_R, decode, heard)
            if heard is not None:
                places = heard.rows(token_R.numpy(), places if parents is None else places[parents])

    @contextmanager
    def _hearing(
        self, prompts: Sequence[Prompt], rows: Sequence[tuple[int, int]], sampling: Sampling
    ) -> Iterator[RecordedLayers | None]:
        """Keep what the layers give, for the training forward, when that is wanted."""
        recorded = self.scorer.recorded
        if recorded is None or not recorded.listening:
            yield None
            return
        of_prompts = sum(len(prompts[p].token_ids) for p in {p for p, _ in rows})
        temperature = 1.0 if sampling.greedy else sampling.temperature
        with recorded.hear(of_prompts + len(rows) * (sampling.max_new_tokens - 1), temperature):
            yield recorded

    def _hidden(
        self, token_ids_S: Tensor, positions_S: Tensor, layout: Layout, heard: RecordedLayers | None
    ) -> Tensor:
        straight = self.scorer.sampling_weights.straight
        if straight is not None:
            return straight(token_ids_S, positions_S, layout, None if heard is None else heard.keep)
        with rounded(self.policy.device, self.scorer.precision):
            return run_packed(self.scorer.backbone, token_ids_S, positions_S, layout)

    def _call(self, **inputs: Any) -> Any:
        with rounded(self.policy.device, self.scorer.precision):
            return self.policy.model(**inputs, use_cache=True)

    def _decode_plain(
        self, prompts: Sequence[Prompt], rows: Sequence[tuple[int, int]], responses: _Responses
    ) -> None:
        """For models that do not take packed tokens: one prompt at a time, so that nothing is ever padded."""
        taken = _taken(self.policy.model)
        for p in dict.fromkeys(p for p, _ in rows):
            mine = np.array([i for i, (q, _) in enumerate(rows) if q == p])
            responses.stand_on(np.arange(len(mine)), mine)
            ids = torch.from_numpy(prompts[p].token_ids.astype(np.int64)).to(self.policy.device)[None]
            output = self._call(input_ids=ids, logits_to_keep=1)
            cache = _cache_of(output)
            if not _repeated(cache, len(mine)):  # then every rollout computes the prompt
                output = self._call(input_ids=ids.expand(len(mine), -1), logits_to_keep=1)
                cache = _cache_of(output)
            logits = output.logits[:, -1].float()
            logits = logits.expand(len(mine), -1).clone()
            position_N1 = torch.full((len(mine), 1), ids.shape[1], device=self.policy.device)
            while responses.take(logits):
                step = {"input_ids": responses.last_tokens[:, None].to(self.policy.device)}
                if "position_ids" in taken:
                    # Said, since a cache that begins with a recurrent layer counts no tokens.
                    step["position_ids"] = position_N1
                output = self._call(**step, **{_cache_name(taken): cache})
                cache = _cache_of(output)
                logits = output.logits[:, -1].float()
                position_N1 = position_N1 + 1

    def _rollout(self, prompt: Prompt, group_index: int, responses: _Responses, row: int) -> Rollout:
        n = int(responses.length_N[row])
        ids = responses.token_NT[row, :n].astype(np.int32)
        stopped = bool(responses.stopped_N[row])
        text_ids = ids[:-1] if stopped else ids
        kept = responses.kept_NT
        return Rollout(
            prompt_id=prompt.id,
            group_index=group_index,
            token_ids_T=ids,
            trainable_T=np.ones(n, dtype=np.bool_),
            sampler_logprobs_T=responses.logprob_NT[row, :n].copy(),
            kept_mass_T=None if kept is None else kept[row, :n].copy(),
            entropy_T=responses.entropy_NT[row, :n].copy(),
            stop_reason=StopReason.STOP if stopped else StopReason.LENGTH,
            policy_version=self.version,
            text=self.policy.decode(text_ids.tolist()),
        )


def _limit(prompt: Prompt, sampling: Sampling) -> int:
    """The most new tokens of a response to the prompt."""
    return min(sampling.max_new_tokens, prompt.max_new_tokens or sampling.max_new_tokens)


class _Responses:
    """What has been drawn so far for N rollouts, and which of them the model's rows belong to."""

    def __init__(
        self,
        uniforms: Sequence[NDArray[np.float64]],
        sampling: Sampling,
        stop: Tensor,
        device: torch.device,
        *,
        greedy_N: NDArray[np.bool_],
        limit_N: NDArray[np.int64],
    ) -> None:
        n, limit = len(uniforms), sampling.max_new_tokens
        self.limit_N = limit_N
        self.sampling, self.stop = sampling, stop
        self.keep_mass = False
        self.greedy_N = torch.from_numpy(greedy_N).to(device) if greedy_N.any() else None
        self.uniform_NT = torch.from_numpy(np.stack(uniforms)).to(device)
        self.token_NT = np.zeros((n, limit), dtype=np.int64)
        self.logprob_NT = np.zeros((n, limit), dtype=np.float32)
        self.entropy_NT = np.zeros((n, limit), dtype=np.float32)
        self.kept_NT = np.ones((n, limit), dtype=np.float32) if sampling.truncates else None
        self.length_N = np.zeros(n, dtype=np.int64)
        self.stopped_N = np.zeros(n, dtype=np.bool_)

    def stand_on(self, row_of: NDArray[np.int64], rollouts: NDArray[np.int64] | None = None) -> None:
        """Start: the row of logits that each rollout stands on, for all rollouts or those given."""
        self.rollouts = np.arange(len(row_of)) if rollouts is None else rollouts
        self.row_of = row_of
        self.rows = int(row_of.max()) + 1
        self.running = np.ones(len(row_of), dtype=np.bool_)
        self.time = 0

    def take(self, logits_RV: Tensor) -> bool:
        """Draw the next token of every rollout; False when all have ended."""
        device = self.uniform_NT.device
        rollout_N = torch.from_numpy(self.rollouts).to(device)
        row_N = torch.from_numpy(self.row_of).to(device)
        greedy_N = None if self.greedy_N is None else self.greedy_N[rollout_N]
        uniform_N = self.uniform_NT[rollout_N, self.time]
        drawn = draw(
            logits_RV.to(device), self.sampling, uniform_N, row_N, greedy_N, keep_mass=self.keep_mass
        )
        if not bool(drawn.logprob_N.isfinite().all()):
            raise EngineError(
                "sampling met log-probs that are not finite: the model's weights hold NaN or infinity, or its logits "
                "overflow; load an earlier checkpoint, or lower training.learning_rate"
            )
        self.last_tokens = drawn.token_N
        self.drawn = drawn.token_N.cpu().numpy()
        self.before_N3, self.mass_RV = drawn.before_N3, drawn.mass_RV
        running = self.running
        mine = self.rollouts[running]
        self.token_NT[mine, self.time] = self.drawn[running]
        self.logprob_NT[mine, self.time] = drawn.logprob_N.cpu().numpy()[running]
        self.entropy_NT[mine, self.time] = drawn.entropy_N.cpu().numpy()[running]
        if self.kept_NT is not None and drawn.kept_mass_N is not None:
            self.kept_NT[mine, self.time] = drawn.kept_mass_N.cpu().numpy()[running]
        self.time += 1
        self.length_N[mine] = self.time
        stopped = torch.isin(drawn.token_N, self.stop).cpu().numpy()
        self.stopped_N[self.rollouts[running & stopped]] = True
        self.running = running & ~stopped & (self.limit_N[self.rollouts] > self.time)
        return self.time < self.sampling.max_new_tokens and bool(self.running.any())

    def part(self) -> tuple[NDArray[np.int64] | None, Tensor]:
        """The rows to compute next: one for each different response so far, shared by the rollouts that gave it.

        Returns:
            The row that each new row continues, or None to go on with the rows as they are; and each row's token.
        """
        device = self.uniform_NT.device
        pairs = np.stack([self.row_of[self.running], self.drawn[self.running]])
        different, index = np.unique(pairs, axis=1, return_inverse=True)
        parents, tokens = different
        if len(np.unique(parents)) == len(parents) > _COMPACT_AT * self.rows:
            # Nothing parted and few rows ended: moving keys and values would cost more than the idle rows do.
            token_R = np.zeros(self.rows, dtype=np.int64)
            token_R[parents] = tokens
            return None, torch.from_numpy(token_R).to(device)
        self.rollouts, self.drawn = self.rollouts[self.running], self.drawn[self.running]
        self.row_of, self.rows = index.reshape(-1), len(parents)
        self.running = np.ones(len(self.rollouts), dtype=np.bool_)
        return parents, torch.from_numpy(np.ascontiguousarray(tokens)).to(device)


def _bytes_per_token(model: Any) -> int:
    """Keys and values of one token in all layers. A recurrent model, which has none, counts as one head."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None) or 1
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    numbers: int = 2 * key_heads * size * config.num_hidden_layers
    return numbers * int(next(model.parameters()).element_size())


def _taken(model: torch.nn.Module) -> Collection[str]:
    """The names of what the model's forward takes."""
    causal: Any = model.get_base_model() if hasattr(model, "peft_config") else model  # type: ignore[operator]
    return inspect.signature(inspect.unwrap(type(causal).forward)).parameters


def _cache_name(taken: Collection[str]) -> str:
    """The argument that takes the cache."""
    for name in _CACHES:
        if name in taken:
            return name
    raise EngineError(_NO_CACHE)


def _repeated(cache: Any, count: int) -> bool:
    """Repeat a cache of one row for so many, in place; False when it cannot be, as a recurrent state in it cannot.

    Where layers hold such a state beside keys and values, transformers repeats these alone.
    """
    if any(hasattr(layer, "conv_states") for layer in getattr(cache, "layers", ())):
        return False
    try:
        cache.batch_repeat_interleave(count)
    except (AttributeError, IndexError):
        return False
    return True


def _cache_of(output: Any) -> Any:
    for name in _CACHES:
        found = getattr(output, name, None)
        if found is not None:
            return found
    raise EngineError(_NO_CACHE)
