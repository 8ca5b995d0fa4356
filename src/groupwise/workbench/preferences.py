"""Preference pairs: rows with a prompt, a chosen and a rejected response, to token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.config import LoadedConfig, RunConfig
from groupwise.errors import ConfigError, DataError
from groupwise.prompts.encode import encode
from groupwise.prompts.load import Row, check_rows, refuse_wrong
from groupwise.prompts.overlap import without_repeats
from groupwise.prompts.template import ChatTemplate, ControlStrings
from groupwise.records import Prompt, Rollout, StopReason
from groupwise.records.nouns import IntArray
from groupwise.registry import nearest
from groupwise.training.inputs import read_data

if TYPE_CHECKING:
    from groupwise.model.load import Policy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """A response behind its prompt, as `training.batch` takes it."""

    prompt_ids: IntArray
    """The prompt's tokens; both answers of a pair share the array."""
    rollout: Rollout
    """Its tokens. Nobody sampled it, so its sampler's log-probs are NaN."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """Two responses to one prompt, of which one is preferred."""

    prompt: Prompt
    """What they answer."""
    chosen: Answer
    """The better one."""
    rejected: Answer
    """The worse one."""

    @property
    def answers(self) -> tuple[Answer, Answer]:
        """Chosen, then rejected."""
        return self.chosen, self.rejected

    @property
    def tokens(self) -> int:
        """Of the prompt and both responses."""
        return len(self.prompt.token_ids) + sum(len(a.rollout.token_ids_T) for a in self.answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceInputs:
    """What a run starts from, all checked before a model is loaded."""

    loaded: LoadedConfig
    """The configuration."""
    train: list[Row]
    """Rows to train on, in one form."""
    held_out: list[Row]
    """Rows to evaluate on; empty for none."""
    notices: tuple[str, ...]
    """What is worth knowing of the rows, for people."""
    origin: Mapping[str, Any]
    """Where the data came from, as keywords of `records.run_folder.fingerprints`."""

    @property
    def config(self) -> RunConfig:
        """The configuration's values."""
        return self.loaded.config


def read_preferences(
    loaded: LoadedConfig,
    *,
    train: Sequence[Mapping[str, Any]] | None = None,
    held_out: Sequence[Mapping[str, Any]] | None = None,
) -> PreferenceInputs:
    """Read the pairs and check them.

    Args:
        loaded: the configuration.
        train: rows given in Python instead of `prompts.train`.
        held_out: rows given in Python instead of `prompts.held_out`.

    Raises:
        ConfigError, DataError: one sentence naming the place and the remedy.
    """
    if loaded.config.dpo.chosen == loaded.config.dpo.rejected:
        raise ConfigError(
            f"dpo.chosen and dpo.rejected both name the column {loaded.config.dpo.chosen!r}; a pair has two"
        )
    data = read_data(loaded, train=train, held_out=held_out)
    held_out_rows = preference_rows(data.held_out, loaded.config) if data.held_out else []
    train_rows = preference_rows(data.train, loaded.config)
    checked = without_repeats(train_rows, held_out_rows, loaded.config.prompts)
    return PreferenceInputs(
        loaded=loaded,
        train=checked.train,
        held_out=held_out_rows,
        notices=checked.sentences,
        origin=data.origin(),
    )


def preference_rows(rows: Sequence[Row], config: RunConfig) -> list[Row]:
    """Rows in one form: the prompt as text or messages, both responses as text.

    A response is a text, or a list of messages that ends with it as an assistant turn. The turns before it must be
    the prompt's; where the row has no prompt, they are the prompt. A text prompt whose responses are messages is the
    user's turn. Needs no model or tokenizer.

    Raises:
        DataError, ConfigError: a missing, empty or malformed response, turns that do not belong to the prompt, or
            what is wrong with a prompt; names the first such row and counts the others.
    """
    made: list[Row] = []
    wrong: list[tuple[Row, str]] = []
    for row in rows:
        try:
            made.append(_in_one_form(row, config))
        except DataError as error:
            wrong.append((row, str(error)))
    refuse_wrong(wrong, len(rows))
    check_rows(made, config.prompts)
    return made


def _in_one_form(row: Row, config: RunConfig) -> Row:
    name = config.prompts.columns.prompt
    texts: dict[str, str] = {}
    befores: list[list[Mapping[str, Any]]] = []
    for column in (config.dpo.chosen, config.dpo.rejected):
        texts[column], before = _response(row, column, config)
        befores.append(before)
    if len(texts) < 2:
        raise DataError(f"dpo.chosen and dpo.rejected both name the column {config.dpo.chosen!r}")
    turns = _turns(befores, config)
    prompt = row.columns.get(name)
    if prompt is None:
        if not turns:
            raise DataError(
                f"no column {name!r}, and the responses are no conversations that it could be read from; the row has "
                f"{', '.join(row.columns)}; prompts.columns.prompt names another column"
            )
        prompt = turns
    elif isinstance(prompt, str):
        chat = any(isinstance(row.columns[column], list | tuple) for column in texts)
        if turns and (turns[-1].get("role"), turns[-1].get("content")) != ("user", prompt):
            raise DataError(
                f"the turns before the response end with {str(turns[-1].get('content'))!r:.60}, not with the prompt "
                f"{prompt!r:.60}; take one of the two out"
            )
        if chat:
            prompt = turns or [{"role": "user", "content": prompt}]
    elif turns and _said(turns) != _said(prompt):
        raise DataError(
            f"the turns before the response are not those of the column {name!r}; take one of them out"
        )
    return replace(row, columns={**row.columns, name: prompt, **texts})


def _said(turns: Sequence[Any]) -> list[Any]:
    return [(t.get("role"), t.get("content")) if isinstance(t, Mapping) else t for t in turns]


def _turns(befores: Sequence[list[Mapping[str, Any]]], config: RunConfig) -> list[Mapping[str, Any]]:
    """The turns before the responses, which both must share where both have some."""
    chosen, rejected = befores
    if chosen and rejected and _said(chosen) != _said(rejected):
        raise DataError(
            f"the turns before the response differ between {config.dpo.chosen!r} and {config.dpo.rejected!r}; a pair "
            "answers one prompt"
        )
    return chosen or rejected


def _response(row: Row, column: str, config: RunConfig) -> tuple[str, list[Mapping[str, Any]]]:
    """The text of a response and the turns before it."""
    if column not in row.columns:
        others = [key for key in row.columns if key != config.prompts.columns.prompt]
        near = nearest(column, others)
        hint = f"did you mean {near!r}? " if near else ""
        key = "chosen" if column == config.dpo.chosen else "rejected"
        raise DataError(
            f"no column {column!r}; {hint}the row has {', '.join(row.columns) or 'no columns'}; dpo.{key} names it"
        )
    value = row.columns[column]
    before: list[Mapping[str, Any]] = []
    if isinstance(value, list | tuple):
        last = value[-1] if value else None
        if not isinstance(last, Mapping) or last.get("role") != "assistant":
            what = "is an empty list" if not value else "does not end with an assistant turn"
            raise DataError(f"the response in column {column!r} {what}; the last message is the response")
        before, value = list(value[:-1]), last.get("content")
    if not isinstance(value, str):
        kind = "null" if value is None else f"of type {type(value).__name__}"
        raise DataError(
            f"the response in column {column!r} is {kind}; it is text or a list of messages that ends with it"
        )
    if not value.strip():
        raise DataError(f"the response in column {column!r} is empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"the response in column {column!r} holds half of a surrogate pair, which is no text"
        ) from None
    return value, before


def encode_pairs(rows: Sequence[Row], config: RunConfig, policy: Policy) -> tuple[list[Pair], list[str]]:
    """Pairs with token ids, and what is worth telling of them.

    A response's ids are those of its text, behind them the token that ends a turn, as the policy would have drawn
    them. Control strings in a response are ordinary text. Pairs of equal responses teach nothing and are left out.

    Args:
        rows: as `preference_rows` gives them.
        config: the sections `prompts` and `dpo`.
        policy: its tokenizer, stop tokens and context.

    Raises:
        DataError: a prompt or response over its limit where `prompts.too_long` is `error`, or no pair left.
        ConfigError: the limits leave no room.
    """
    limit, for_prompts = _limits(config, policy)
    columns = (config.dpo.chosen, config.dpo.rejected)
    ends = _Ends(config, policy)
    responses = [_ids(row, column, config, ends, limit) for row in rows for column in columns]
    found = dict(
        zip([row.id for row in rows], zip(responses[0::2], responses[1::2], strict=True), strict=True)
    )
    equal = {row.id for row in rows if np.array_equal(found[row.id][0].ids, found[row.id][1].ids)}
    kept = [row for row in rows if row.id not in equal and all(r.kept for r in found[row.id])]
    over = sum(not all(r.kept for r in found[row.id]) for row in rows)
    if not kept:
        raise DataError(
            f"{rows[0].source}: no pair is left of {len(rows)}: {len(equal)} have equal responses and {over} are over "
            f"the limit of {limit} tokens"
        )
    prompts, report = encode(
        kept, config.prompts, policy.tokenizer, limit_tokens=for_prompts, rest="dpo.max_response_tokens"
    )
    pairs = [
        Pair(
            prompt=prompt,
            chosen=_answer(prompt, 0, found[prompt.id][0], policy),
            rejected=_answer(prompt, 1, found[prompt.id][1], policy),
        )
        for prompt in prompts
    ]
    lengths = [len(a.rollout.token_ids_T) for pair in pairs for a in pair.answers]
    cut = sum(a.rollout.stop_reason is StopReason.LENGTH for pair in pairs for a in pair.answers)
    notes = (
        (len(equal), f"{len(equal)} of {len(rows)} pairs have equal responses and are left out."),
        (
            over,
            f"{over} of {len(rows)} pairs: a response over {limit} tokens, left out (prompts.too_long: drop).",
        ),
        (cut, f"{cut} responses over {limit} tokens were cut at their end (prompts.too_long: truncate)."),
    )
    said = (
        f"Responses have {np.mean(lengths):.0f} tokens on average and {max(lengths)} at most (limit {limit})."
    )
    return pairs, [*report.sentences(), said, *(sentence for count, sentence in notes if count)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Response:
    ids: IntArray
    text: str
    ended: bool
    """False where it was cut, so that the end token is not trained."""
    kept: bool
    """False where it is over the limit and to be left out."""


def _limits(config: RunConfig, policy: Policy) -> tuple[int, int]:
    """Tokens of a response and of a prompt."""
    context, prompt = policy.context_tokens, config.prompts.max_prompt_tokens
    response = config.dpo.max_response_tokens or (context // 2 if prompt is None else context - prompt)
    for_prompts = context - response if prompt is None else prompt
    if response < 1 or for_prompts < 1 or for_prompts + response > context:
        raise ConfigError(
            f"prompts of up to {for_prompts} tokens and responses of up to {response} do not fit the {context} tokens "
            f"of {policy.name}; lower dpo.max_response_tokens or prompts.max_prompt_tokens"
        )
    return response, for_prompts


def _ids(row: Row, column: str, config: RunConfig, ends: _Ends, limit: int) -> _Response:
    chat = not isinstance(row.columns[config.prompts.columns.prompt], str) or config.prompts.chat
    text = row.columns[column]
    controls, end = ends.of(chat)
    ids = [*controls.plain_ids(text, row.place), end]
    if len(ids) > limit and config.prompts.too_long == "error":
        raise DataError(
            f"{row.place}: the response in column {column!r} has {len(ids)} tokens, its end included, over the limit "
            f"of {limit}; raise dpo.max_response_tokens, or set prompts.too_long to drop or truncate"
        )
    fits = len(ids) <= limit
    return _Response(
        ids=np.array(ids[:limit], dtype=np.int32),
        text=text,
        ended=fits,
        kept=fits or config.prompts.too_long == "truncate",
    )


class _Ends:
    """What is control text in a response, and which token ends it: in a chat as its template has it, else plainly."""

    def __init__(self, config: RunConfig, policy: Policy) -> None:
        self._config, self._policy = config, policy
        self._known: dict[bool, tuple[ControlStrings, int]] = {}

    def of(self, chat: bool) -> tuple[ControlStrings, int]:
        if chat not in self._known:
            tokenizer, arguments = self._policy.tokenizer, self._config.prompts.chat_template_kwargs
            controls = ChatTemplate(tokenizer, arguments).controls if chat else ControlStrings(tokenizer)
            self._known[chat] = controls, self._end(chat)
        return self._known[chat]

    def _end(self, chat: bool) -> int:
        """In a chat the stop token that the template writes behind an assistant's turn; else the end of text."""
        tokenizer: Any = self._policy.tokenizer
        stops = self._policy.stop_token_ids
        if chat:
            mark = "xqx"
            turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": mark}]
            arguments = self._config.prompts.chat_template_kwargs
            try:
                text = tokenizer.apply_chat_template(turns, tokenize=False, **arguments)
            except Exception:  # a template may refuse made-up turns; the tokenizer's own end serves
                text = ""
            behind = text.rpartition(mark)[2]
            ids = tokenizer(behind, add_special_tokens=False, verbose=False)["input_ids"]
            stop = next((i for i in ids if i in stops), None)
            if stop is not None:
                return int(stop)
        own = tokenizer.eos_token_id
        return int(own) if own in stops else stops[0]


def _answer(prompt: Prompt, index: int, response: _Response, policy: Policy) -> Answer:
    count = len(response.ids)
    text = response.text if response.ended else policy.tokenizer.decode(response.ids.tolist())
    rollout = Rollout(
        prompt_id=prompt.id,
        group_index=index,
        token_ids_T=response.ids,
        trainable_T=np.ones(count, dtype=np.bool_),
        sampler_logprobs_T=np.full(count, np.nan, dtype=np.float32),
        kept_mass_T=None,
        entropy_T=None,
        stop_reason=StopReason.STOP if response.ended else StopReason.LENGTH,
        policy_version=0,
        text=text,
    )
    return Answer(prompt_ids=prompt.token_ids, rollout=rollout)
