"""A transformers sequence-classification model that scores conversations, batched by tokens."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from groupwise.errors import ConfigError, ModelError, raised
from groupwise.model.find import EMBEDDED, TINY, find_model
from groupwise.model.load import resolve_device
from groupwise.model.reading import reading
from groupwise.registry import nearest
from groupwise.rewards.completions import text_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_HEADS = (
    "score",
    "classifier",
    "classification_head",
    "v_head",
)  # kept in full precision when weights are quantised
_UNSTATED = 10**9  # tokenizers without a limit state one of about 10^30


def find_classifier(name: str, revision: str | None) -> Path | str:
    """The folder or hub id, checked as far as is possible without loading it.

    Raises:
        ModelError: there is none, or its configuration is that of a language model.
    """
    try:
        found = find_model(name, Path.cwd(), revision=revision, key="the reward model")
    except ModelError as error:  # without its advice on policies
        raise ModelError(str(error).partition("; without a model at hand")[0]) from error.__cause__
    if found in (EMBEDDED, TINY) or (isinstance(found, Path) and found.suffix.lower() == ".gguf"):
        raise ModelError(
            f"the reward model {name!r} is a language model; name a folder or hub id of a sequence-classification model"
        )
    if isinstance(found, Path):
        try:
            kinds = json.loads((found / "config.json").read_text(encoding="utf-8")).get("architectures") or []
        except (OSError, ValueError, AttributeError) as error:
            raise ModelError(
                f"the reward model {name!r}: its config.json cannot be read: {raised(error)}"
            ) from None
        if any(
            str(kind).endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")) for kind in kinds
        ):
            raise ModelError(
                f"the reward model {name!r} is a language model ({kinds[0]}), without a head that scores; name a "
                "sequence-classification model"
            )
    return found


@functools.lru_cache(maxsize=4)
def load_scorer(
    name: str, *, revision: str | None, device: str, dtype: str, bits: int | None, trust_remote_code: bool
) -> SequenceScorer:
    """Load a model once per process; the random state is neither read nor changed.

    Args:
        name: folder or hub id.
        revision: of a hub id.
        device: as `resolve_device` takes it.
        dtype: name of a torch dtype.
        bits: 8 or 4 to quantise the weights, None not to.
        trust_remote_code: run Python code that comes with the model.

    Raises:
        ModelError: it cannot be read, or its head is missing.
        ConfigError: no such device.
    """
    from transformers import BitsAndBytesConfig
    from transformers.models.auto.modeling_auto import AutoModelForSequenceClassification
    from transformers.models.auto.tokenization_auto import AutoTokenizer

    found = str(find_classifier(name, revision))
    where = resolve_device(device, "device of the reward model")
    known: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    options: dict[str, Any] = {"dtype": getattr(torch, dtype), "output_loading_info": True}
    if bits is not None:
        options["device_map"] = {"": where}
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_8bit=bits == 8,
            load_in_4bit=bits == 4,
            bnb_4bit_compute_dtype=getattr(torch, dtype),
            llm_int8_skip_modules=list(_HEADS),
        )
    trust = "trust_remote_code: true among the settings of the reward"
    with reading(f"the reward model {name}", trust=trust), torch.random.fork_rng():
        tokenizer = AutoTokenizer.from_pretrained(found, **known)
        model, info = AutoModelForSequenceClassification.from_pretrained(found, **known, **options)
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelError(
            f"the reward model {name!r} lacks weights of its own for {', '.join(missing)[:200]}, which would be random "
            "numbers; name a model that was trained to score"
        )
    if bits is None:
        model.to(where)
    model.eval()
    return SequenceScorer(model, tokenizer, name=name, device=where)


class SequenceScorer:
    """A loaded reward model.

    Args:
        model: with a classification head, in evaluation mode, on `device`.
        tokenizer: its own.
        name: for messages.
        device: where it is.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, name: str, device: torch.device
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.name = name
        self.device = device
        self._pad_token_id: int | None = model.config.get_text_config().pad_token_id

    def score(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        join: str,
        label: str | int | None,
        output: str,
        max_tokens: int | None,
        batch_tokens: int,
    ) -> list[float | Exception]:
        """See the scorer `reward_model`; a row that cannot be scored has an exception in place of its score.

        Raises:
            ConfigError: the model has several outputs and none, or one that is not there, was chosen; `chat` without a
                template.
        """
        column = self._column(label)
        if join == "chat" and not self.tokenizer.chat_template:
            raise ConfigError(
                f"join is chat, but the tokenizer of {self.name} has no chat template; use pair or text"
            )
        limit = self._limit(max_tokens)
        rows: dict[int, dict[str, list[int]]] = {}
        values: list[float | Exception] = [ValueError("it was not scored")] * len(completions)
        for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            try:
                row = self.encode(prompt, text_of(completion), join=join)
            except Exception as error:  # a template raises what it likes, for example on a system turn
                values[i] = ValueError(f"the reward model's template refuses it ({raised(error)})")
                continue
            if not 0 < len(row["input_ids"]) <= limit:
                values[i] = ValueError(
                    f"it has {len(row['input_ids'])} tokens; the reward model reads 1 to {limit}"
                )
                continue
            rows[i] = row
        order = sorted(rows, key=lambda i: (len(rows[i]["input_ids"]), i))
        while order:
            size = 1
            while size < len(order) and (size + 1) * len(rows[order[size]]["input_ids"]) <= batch_tokens:
                size += 1
            batch, order = order[:size], order[size:]
            scores = self._forward([rows[i] for i in batch], column, output)
            values = [scores[batch.index(i)] if i in batch else value for i, value in enumerate(values)]
        return values

    def encode(self, prompt: Any, answer: str, *, join: str) -> dict[str, list[int]]:
        """One row as the model reads it.

        Args:
            prompt: text or messages.
            answer: the completion's text.
            join: `auto`, `chat`, `pair` or `text`.

        Returns:
            `input_ids`, and `token_type_ids` where the tokenizer tells segments apart.
        """
        if join == "chat" or (join == "auto" and self.tokenizer.chat_template):
            turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
            turns.append({"role": "assistant", "content": answer})
            # As ids, since tokenising the rendered text again would put a second start token before it.
            encoded: Any = self.tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True)
        else:
            asked = prompt if isinstance(prompt, str) else "\n".join(turn["content"] for turn in prompt)
            encoded = self.tokenizer(asked + answer) if join == "text" else self.tokenizer(asked, answer)
        return {key: list(encoded[key]) for key in ("input_ids", "token_type_ids") if key in encoded}

    def _forward(self, rows: Sequence[dict[str, list[int]]], column: int, output: str) -> list[float]:
        longest = max(len(row["input_ids"]) for row in rows)
        pad = self._pad(rows)
        inputs = {
            key: torch.tensor(
                [row[key] + [pad if key == "input_ids" else 0] * (longest - len(row[key])) for row in rows],
                device=self.device,
            )
            for key in rows[0]
        }
        mask = [[1] * len(row["input_ids"]) + [0] * (longest - len(row["input_ids"])) for row in rows]
        settings = self.model.config.get_text_config()
        settings.pad_token_id = pad
        try:
            with torch.inference_mode():
                logits = self.model(
                    **inputs, attention_mask=torch.tensor(mask, device=self.device)
                ).logits.float()
        finally:
            settings.pad_token_id = self._pad_token_id
        if output == "probability":
            logits = logits.sigmoid() if logits.shape[-1] == 1 else logits.softmax(-1)
        scores: list[float] = logits[:, column].double().cpu().tolist()
        return scores

    def _pad(self, rows: Sequence[dict[str, list[int]]]) -> int:
        """The model's own pad token, or an id that no row holds: the model takes the last token that is another."""
        if self._pad_token_id is not None:
            return self._pad_token_id
        held = {token for row in rows for token in row["input_ids"]}
        return next((i for i in range(self.model.config.get_text_config().vocab_size) if i not in held), 0)

    def _column(self, label: str | int | None) -> int:
        names = {int(i): str(name) for i, name in self.model.config.id2label.items()}
        if label is None:
            if len(names) == 1:
                return 0
            raise ConfigError(
                f"the reward model {self.name} has the outputs {', '.join(names.values())}; choose one with label"
            )
        for i, name in names.items():
            if label in (i, name):
                return i
        near = nearest(str(label), names.values())
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(names.values())}"
        raise ConfigError(f"the reward model {self.name} has no output {label!r}; {hint}")

    def _limit(self, max_tokens: int | None) -> int:
        settings = self.model.config.get_text_config()
        stated = [
            getattr(settings, "max_position_embeddings", None),
            self.tokenizer.model_max_length,
            max_tokens,
        ]
        return int(
            min((limit for limit in stated if limit is not None and limit < _UNSTATED), default=_UNSTATED)
        )
