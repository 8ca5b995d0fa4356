"""Log-probs and entropies of response tokens under a model; `model/head.py` makes them of hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.model import attention
from groupwise.model.gated import faster_gates, own_gates
from groupwise.model.head import head_logits, head_logprobs
from groupwise.model.norms import faster_norms, own_norms
from groupwise.model.precision import exactly, rounded
from groupwise.model.recorded import Known, RecordedLayers
from groupwise.model.sampling_weights import SamplingWeights
from groupwise.model.shared_prefix import Family, PackedFamilies, pack
from groupwise.model.straight import fits

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from groupwise.model.sharding import Shards
    from groupwise.model.zero import ZeroShards


class TokenLogprobs:
    """Scores responses under a causal language model, prompts computed once where the model allows.

    Whether it allows is not guessed from its name: a few random tokens are scored on both paths once, and when the
    results differ (a recurrent layer, a scaled head, attention of its own) the plain path is used from then on.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        longest_tokens: int,
        share_prefix: bool = True,
        precision: torch.dtype | None = None,
        flex: bool = False,
        compiled: bool = False,
    ) -> None:
        """Probe the model.

        Args:
            model: a transformers causal language model, or PEFT around one.
            longest_tokens: longest prompt and response together that will be scored.
            share_prefix: False takes the plain path at once.
            precision: of the products in the layers, see `model/precision.py`; None for the weights' own.
            flex: attend by FlexAttention where prompts are shared, see `model/flex.py`.
            compiled: run the layers through torch.compile where a gradient is wanted.
        """
        self.model = model
        self.recorded: RecordedLayers | None = None
        """What layers and head gave while sampling; None where it is not kept."""
        self._given: tuple[Known, Tensor] | None = None
        self.precision: torch.dtype | None = None  # while probing, so that a difference stands out
        self.flex = flex
        self.device = next(model.parameters()).device
        causal: Any = model.get_base_model() if hasattr(model, "peft_config") else model  # type: ignore[operator]
        # The text model of Llama 4 states another name than the one it has.
        self.backbone: Any = getattr(causal, str(causal.base_model_prefix), getattr(causal, "model", causal))
        # What trains. Sampling exchanges the layers' weights, for which compiled layers would be compiled again.
        self._trained: Any = self.backbone
        self.head = causal.get_output_embeddings()
        self.sampling_weights = SamplingWeights(model, exact=self.head)
        """For whoever samples; let go with every call, which needs the memory or comes before an update."""
        self.notice: str | None = "share_prefix is off"
        """Why the plain path is used; None when prompts are shared."""
        self.whole_logits = True
        """True when the plain path has to hold all logits of a micro-batch, since the head is more than one product."""
        if share_prefix:
            own_attention = causal.config._attn_implementation
            self.notice = self._probe(causal, longest_tokens)
            if not self.shared and causal.config._attn_implementation != own_attention:
                # Ours called plainly is SDPA, which lacks what some models need: soft caps, attention sinks.
                causal.set_attn_implementation(own_attention)
        self.precision = precision
        self.shards: Shards | ZeroShards | None = None
        """Where the weights are divided among processes; None where they are all here."""
        if compiled:
            self._trained = torch.compile(self.backbone, dynamic=True)

    @property
    def shared(self) -> bool:
        """True when each prompt is computed once."""
        return self.notice is None

    def divide(self, mesh: DeviceMesh) -> Shards:
        """Divide the weights among the processes of a mesh, all of which do so; see `model/sharding.py`.

        From then on every process scores with gradient equally often, and without gradient inside `gathered` alone.
        """
        from groupwise.model.sharding import Shards  # half a second, for those who have several processes

        self.shards = shards = Shards(self.model, self.backbone, mesh)
        self.recorded = None  # what samples is gathered, what trains is not
        return shards

    def divide_by_zero(self, adamw: torch.optim.AdamW) -> ZeroShards:
        """As `divide`, among all processes and with the optimiser of the weights; see `model/zero.py`."""
        from groupwise.model.zero import ZeroShards

        self.shards = shards = ZeroShards(self.model, self.head, adamw)
        self.recorded = None
        return shards

    def backward(self, loss: Tensor) -> None:
        """The backward pass of what was scored with gradient."""
        if self.shards is None:
            torch.autograd.backward(loss)
        else:
            self.shards.backward(loss)

    def gathered(self) -> AbstractContextManager[None]:
        """Inside, all weights are here, for work without gradient. Every process that has a part of them enters it."""
        return nullcontext() if self.shards is None else self.shards.gathered()

    def __call__(
        self, families: Sequence[Family], *, temperature: float, reuse: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Log-prob and entropy of every response token, in the order of families, responses and tokens.

        Args:
            families: prompts and their responses; every response has a token.
            temperature: divides the logits.
            reuse: take from `recorded` what the layers gave while sampling these very tokens, where it is there.

        Returns:
            Shape [M] each, nats, with gradient where enabled.
        """
        self.sampling_weights.let_go()
        if self.shards is not None and torch.is_grad_enabled():
            return self.shards(self._scored, families, temperature)
        return self._scored(families, temperature, self.recorded if reuse else None)

    def again(self) -> Tensor | None:
        """The log-probs of the last call as its backward pass found them, shape [M]; NaN where it did not look.

        None where the call computed them itself.
        """
        if self._given is None or self._given[0].again is None:
            return None
        return self._given[0].again.index_select(0, self._given[1])

    def _scored(
        self, families: Sequence[Family], temperature: float, recorded: RecordedLayers | None = None
    ) -> tuple[Tensor, Tensor]:
        if self.shared:
            return self._shared(families, temperature, 0, recorded)
        if self.whole_logits:
            with rounded(self.device, self.precision):
                return plain_logprobs(self.model, families, temperature=temperature)
        return self._plain(families, temperature)

    @torch.no_grad()
    def rounding(self, prompts: Sequence[NDArray[np.int32]]) -> Tensor:
        """How far `precision` moves the log-prob of each token of some prompts but the first, absolute, shape [M]."""
        families = [Family(prompt_ids=ids[:1], responses=[ids[1:]]) for ids in prompts if len(ids) > 1]
        found_M, _ = self(families, temperature=1.0)
        precision, self.precision = self.precision, None
        try:
            exact_M, _ = self(families, temperature=1.0)
        finally:
            self.precision = precision
        return (found_M - exact_M).abs()

    @torch.no_grad()
    def logits(self, hidden_RD: Tensor) -> Tensor:
        """Logits in float32 at least, shape [R, V], as the log-probs are taken from."""
        hidden_RD = hidden_RD.to(self.head.weight.dtype)
        with exactly(self.device):
            if self.precision is not None and hidden_RD.is_cuda:
                return head_logits(hidden_RD, self.head.weight, dtype=self.precision)
            logits_RV: Tensor = self.head(hidden_RD)  # called, since its weight may be laid out for sampling
        return logits_RV.to(torch.promote_types(logits_RV.dtype, torch.float32))

    def hidden(self, families: Sequence[Family]) -> Tensor:
        """The hidden state that each response token is predicted from, shape [M, D], with gradient where enabled.

        Args:
            families: prompts and their responses; every response has a token.
        """
        if not self.shared:
            return self._plain_hidden(families)
        hidden_UD, packed = self._packed(families, 0)
        return hidden_UD.index_select(0, packed.serves_M)

    def _plain_hidden(self, families: Sequence[Family]) -> Tensor:
        """Every response behind its own copy of the prompt."""
        with rounded(self.device, self.precision):
            layers = self._trained if torch.is_grad_enabled() else self.backbone
            hidden_NTD = layers(**_padded(families, self.backbone)).last_hidden_state
        return _picked(families, hidden_NTD)

    def _plain(self, families: Sequence[Family], temperature: float) -> tuple[Tensor, Tensor]:
        """The same with the head in chunks."""
        hidden_MD = self._plain_hidden(families)
        return self._head(hidden_MD, _targets(families, self.device), temperature)

    def _head(
        self, hidden_MD: Tensor, targets_M: Tensor, temperature: float, known: Known | None = None
    ) -> tuple[Tensor, Tensor]:
        return head_logprobs(
            hidden_MD,
            self.head.weight,
            targets_M,
            temperature=temperature,
            dtype=self.precision,
            known=known,
        )

    def _shared(
        self,
        families: Sequence[Family],
        temperature: float,
        longest_tokens: int,
        recorded: RecordedLayers | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Each different prediction once, handed to every response token that it serves."""
        hidden_UD, packed = self._packed(families, longest_tokens, recorded)
        known = None
        if recorded is not None and packed.places_S is not None:
            known = recorded.known(
                packed.places_S[packed.predict_U], packed.targets_U, temperature, hidden_UD.dtype
            )
            recorded.forget()
        self._given = None if known is None else (known, packed.serves_M)
        logprobs_U, entropy_U = self._head(hidden_UD, packed.targets_U, temperature, known)
        return logprobs_U.index_select(0, packed.serves_M), entropy_U.index_select(0, packed.serves_M)

    def _packed(
        self, families: Sequence[Family], longest_tokens: int, recorded: RecordedLayers | None = None
    ) -> tuple[Tensor, PackedFamilies]:
        """The hidden state behind each different prediction, and what it serves."""
        with rounded(self.device, self.precision):
            return pack(
                self._trained if torch.is_grad_enabled() else self.backbone,
                families,
                self.head.weight.dtype,
                longest_tokens,
                device=self.device,
                flex=self.flex,
                recorded=recorded,
            )

    def _probe(self, causal: Any, longest_tokens: int) -> str | None:
        if type(self.head) is not torch.nn.Linear or self.head.bias is not None:
            return "its head is not a plain linear layer"
        rng = np.random.default_rng(0)
        vocabulary = self.head.weight.shape[0]
        draw = [rng.integers(0, vocabulary, n).astype(np.int32) for n in (7, 4, 1, 6, 5, 3)]
        families = [
            Family(prompt_ids=draw[0], responses=[draw[1], draw[2], draw[3]]),
            Family(prompt_ids=draw[4], responses=[draw[5]]),
        ]
        training = causal.training
        causal.eval()
        try:
            with torch.no_grad():
                right_M, _ = plain_logprobs(self.model, families, temperature=1.0)  # with its own attention
                hidden_MD = _picked(families, self.backbone(**_padded(families, self.backbone))[0])
                targets_M = _targets(families, hidden_MD.device)
                chunked_M, _ = head_logprobs(hidden_MD, self.head.weight, targets_M, temperature=1.0)
                self.whole_logits = self._gap(chunked_M, right_M) is not None
                if self.whole_logits:
                    return "its head does more than one product"
                # From here on, so that a wrong one would show.
                norms, gates = faster_norms(causal), faster_gates(causal)
                notice = self._probe_shared(causal, families, right_M, longest_tokens)
                if notice is not None:
                    own_norms(norms)
                    own_gates(gates)
                elif fits(self.backbone, longest_tokens):
                    self.sampling_weights.backbone = self.backbone
                return notice
        finally:
            causal.train(training)

    def _probe_shared(
        self, causal: Any, families: Sequence[Family], right_M: Tensor, longest_tokens: int
    ) -> str | None:
        """With prompts shared, against the log-probs of the model as it came."""
        causal.set_attn_implementation(attention.NAME)
        if causal.config._attn_implementation != attention.NAME:
            return "its attention cannot be replaced"
        try:
            ids = torch.from_numpy(families[0].prompt_ids.astype(np.int64)).to(self.device)
            positions = torch.arange(len(ids), device=self.device)
            attention.run_packed(self.backbone, ids, positions, attention.Once(longest_tokens))
            shared_M, _ = self._shared(families, 1.0, longest_tokens)
        except attention.UnsupportedError as reason:
            return str(reason)
        except (TypeError, ValueError, RuntimeError, AttributeError) as error:
            return f"packed tokens made it fail with {type(error).__name__}: {error}"
        gap = self._gap(shared_M, right_M)
        return None if gap is None else f"packed tokens change its log-probs by {gap:.2g}"

    def _gap(self, found_M: Tensor, right_M: Tensor) -> float | None:
        """The largest difference, when it is more than rounding in the model's precision."""
        gap = float((found_M - right_M).abs().max())
        limit = 1e-3 if self.head.weight.dtype in (torch.float32, torch.float64) else 0.25
        return None if gap <= limit else gap


def _targets(families: Sequence[Family], device: torch.device) -> Tensor:
    ids = np.concatenate([r for family in families for r in family.responses])
    return torch.from_numpy(ids.astype(np.int64)).to(device)


def plain_logprobs(
    model: torch.nn.Module, families: Sequence[Family], *, temperature: float
) -> tuple[Tensor, Tensor]:
    """The same by the plain computation: every response behind its own copy of the prompt, padded on the right.

    For models whose layers cannot take packed tokens, and what the shared path is tested against.
    """
    picked = _picked(families, model(**_padded(families, model)).logits)
    logprobs_MV = (picked.to(torch.promote_types(picked.dtype, torch.float32)) / temperature).log_softmax(-1)
    targets_M = _targets(families, picked.device)
    entropy_M = -(logprobs_MV.exp() * logprobs_MV).sum(-1)
    # Not a view, which a divided model must not give: torch warns of it.
    return logprobs_MV.gather(1, targets_M[:, None])[:, 0].clone(), entropy_M


def _padded(families: Sequence[Family], model: torch.nn.Module) -> dict[str, Any]:
    """What a model is called with for whole sequences padded on the right."""
    rows = [np.concatenate([family.prompt_ids, r]) for family in families for r in family.responses]
    width = max(len(row) for row in rows)
    device = next(model.parameters()).device
    ids = torch.zeros(len(rows), width, dtype=torch.long, device=device)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.from_numpy(row.astype(np.int64)).to(device)
        mask[i, : len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask, "use_cache": False}


def _picked(families: Sequence[Family], output_NTD: Tensor) -> Tensor:
    """The positions that predict response tokens, shape [M, D], in order."""
    rows = [(len(family.prompt_ids), len(r)) for family in families for r in family.responses]
    return torch.cat([output_NTD[i, p - 1 : p + t - 1] for i, (p, t) in enumerate(rows)])
