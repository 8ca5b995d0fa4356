"""Rows to prompts: every row is rendered and tokenised once, ahead of time, and what was done is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.errors import ConfigError, DataError
from groupwise.prompts.load import Row, check_rows, history, system_prompt
from groupwise.prompts.template import ChatTemplate, ControlStrings, cut_middle, decode
from groupwise.records.nouns import Messages, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from groupwise.config.prompts import PromptsConfig

_TEXTS_PER_CALL = (
    1024  # fast tokenizers work in parallel within a call; each call's by-products are freed after it
)
_SYSTEM_ROLES = {"system", "developer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReport:
    """What became of the rows. Every row is either kept or dropped."""

    rows: int
    """Rows given."""
    kept: int
    """Prompts made of them."""
    dropped_too_long: int
    """Rows left out since they are over the limit."""
    truncated: int
    """Kept prompts that were cut to the limit."""
    duplicates: int
    """Kept prompts with the same ids as an earlier one; each stays a prompt of its own."""
    control_strings: int
    """Kept chat prompts with control strings such as `<|im_end|>` in a content, encoded as ordinary text."""
    control_strings_in_text: int
    """Kept text prompts with control strings, which act as control tokens there, perhaps as meant."""
    blank_lines: int
    """Blank lines skipped before the last row of each file."""
    longest_tokens: int
    """Tokens of the longest kept prompt."""
    mean_tokens: float
    """Mean tokens of the kept prompts."""
    limit_tokens: int
    """The limit that was applied."""

    def sentences(self) -> list[str]:
        """The report for people: the first sentence always, one more for each thing that is worth knowing."""
        said = [
            f"{self.kept} of {self.rows} rows are prompts, of {self.mean_tokens:.0f} tokens on average and "
            f"{self.longest_tokens} at most (limit {self.limit_tokens})."
        ]
        over = f"over {self.limit_tokens} tokens"
        notes = (
            (self.dropped_too_long, f"{over}, left out (prompts.too_long: drop)"),
            (self.truncated, f"{over}, cut in the middle (prompts.too_long: truncate)"),
            (self.duplicates, "the same as an earlier one, each kept as a prompt of its own"),
            (
                self.control_strings,
                "control strings such as turn ends in a message, encoded as ordinary text",
            ),
            (
                self.control_strings_in_text,
                "control strings in a text prompt, where they act as control tokens",
            ),
        )
        said += [f"{count} of {self.rows} rows: {what}." for count, what in notes if count]
        if self.blank_lines:
            said.append(f"Blank lines skipped: {self.blank_lines}.")
        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A row on its way to becoming a prompt."""

    row: Row
    messages: Messages | None
    text: str
    control: bool
    """True when something that a person wrote holds a control string."""
    ids: list[int]


def encode(
    rows: Sequence[Row],
    config: PromptsConfig,
    tokenizer: PreTrainedTokenizerBase,
    *,
    limit_tokens: int,
    rest: str = "rollout.max_new_tokens",
) -> tuple[list[Prompt], PromptReport]:
    """Check, render and tokenise every row once.

    Messages go through the tokenizer's own chat template, which writes its own special tokens; no others are
    added. Text is encoded with the tokenizer's default special tokens, but for those that it adds behind a text:
    an end of sequence has no place before the response. Either way a prompt begins with at most one begin-of-text
    token. Control strings that people wrote in a message become ordinary text.

    Args:
        rows: in the order that the prompts will have.
        config: all settings of `prompts` but the files and the order.
        tokenizer: the policy's.
        limit_tokens: the longest prompt that fits; `config.max_prompt_tokens` applies as well.
        rest: the setting that takes the rest of the context, for messages.

    Returns:
        The prompts in the order of their rows, and the report. `Prompt.columns` holds every column but
        those that `prompts.columns` names, None where a row lacks one that others have; `Prompt.messages` stays
        whole where the ids were cut.

    Raises:
        DataError: as `check_rows`; a prompt over the limit where `too_long` is `error` or cutting is
            impossible, a prompt without tokens, messages that the template refuses, or no prompt left.
        ConfigError: as `check_rows`; no chat template, or no room for any prompt.
    """
    check_rows(rows, config)
    limit = limit_tokens if config.max_prompt_tokens is None else min(limit_tokens, config.max_prompt_tokens)
    if limit < 1:
        raise ConfigError(
            f"the limit for prompts is {limit} tokens, which leaves no room for any; lower {rest} or use a model with "
            "a longer context"
        )
    chats = [messages_of(row, config) for row in rows]
    template = None
    if any(messages is not None for messages in chats):
        template = ChatTemplate(tokenizer, config.chat_template_kwargs)
    controls = ControlStrings(tokenizer) if template is None else template.controls
    drafts = [
        _draft(row, messages, config, template, controls) for row, messages in zip(rows, chats, strict=True)
    ]
    drafts = _with_ids(drafts, tokenizer, template)
    kept, truncated = _within_limit(drafts, config, tokenizer, template, controls, limit, rest)
    prompts = _prompts(kept, config)
    lengths = [len(draft.ids) for draft in kept]
    report = PromptReport(
        rows=len(rows),
        kept=len(kept),
        dropped_too_long=len(rows) - len(kept),
        truncated=truncated,
        duplicates=len(kept) - len({prompt.token_ids.tobytes() for prompt in prompts}),
        control_strings=sum(draft.control and draft.messages is not None for draft in kept),
        control_strings_in_text=sum(draft.control and draft.messages is None for draft in kept),
        blank_lines=_blank_lines(rows),
        longest_tokens=max(lengths),
        mean_tokens=sum(lengths) / len(lengths),
        limit_tokens=limit,
    )
    return prompts, report


def prompt_limit(config: PromptsConfig, *, context_tokens: int, new_tokens: int, model: str) -> int:
    """The longest prompt, in tokens, that leaves room for so many new ones, or `max_prompt_tokens` where that is set.

    Args:
        config: the section `prompts`.
        context_tokens: of the model.
        new_tokens: what a response may take at most, a note in it included.
        model: its name, for the error.

    Raises:
        ConfigError: they do not fit the model's context together.
    """
    limit = config.max_prompt_tokens or context_tokens - new_tokens
    if limit < 1 or limit + new_tokens > context_tokens:
        raise ConfigError(
            f"prompts of up to {max(limit, 1)} tokens and {new_tokens} new ones do not fit the {context_tokens} tokens "
            f"of {model}; lower rollout.max_new_tokens or prompts.max_prompt_tokens"
        )
    return limit


def messages_of(row: Row, config: PromptsConfig) -> Messages | None:
    """The chat turns of a row, its system turn included; None for a prompt that is text."""
    value = row.columns[config.columns.prompt]
    if isinstance(value, str):
        if not config.chat:
            return None
        value = [*history(row, config), {"role": "user", "content": value}]
    messages: Messages = tuple(dict(message) for message in value)
    system = system_prompt(row, config)
    if system is not None and all(message["role"] not in _SYSTEM_ROLES for message in messages):
        messages = ({"role": "system", "content": system}, *messages)
    return messages


def _draft(
    row: Row,
    messages: Messages | None,
    config: PromptsConfig,
    template: ChatTemplate | None,
    controls: ControlStrings,
) -> _Draft:
    if messages is None:
        text: str = row.columns[config.columns.prompt]
        control = controls.first_in([text]) is not None
    else:
        assert template is not None
        control = template.holds_control(messages, row.place)
        text = template.render(messages, row.place)
    return _Draft(row=row, messages=messages, text=text, control=control, ids=[])


def _with_ids(
    drafts: Sequence[_Draft], tokenizer: PreTrainedTokenizerBase, template: ChatTemplate | None
) -> list[_Draft]:
    ids: list[list[int]] = [[] for _ in drafts]
    apart = {k for k, draft in enumerate(drafts) if draft.control and draft.messages is not None}
    for special in (True, False):  # text gets the tokenizer's special tokens, a template has written its own
        chosen = [
            k for k, draft in enumerate(drafts) if (draft.messages is None) == special and k not in apart
        ]
        for start in range(0, len(chosen), _TEXTS_PER_CALL):
            part = chosen[start : start + _TEXTS_PER_CALL]
            encoded = tokenizer([drafts[k].text for k in part], add_special_tokens=special, verbose=False)[
                "input_ids"
            ]
            for k, row_ids in zip(part, encoded, strict=True):
                ids[k] = list(row_ids)
    for k in apart:
        messages = drafts[k].messages
        assert template is not None
        assert messages is not None
        ids[k] = template.encode_apart(messages, drafts[k].text, drafts[k].row.place)
    bos, behind = tokenizer.bos_token_id, _added_behind(tokenizer)
    for k, draft in enumerate(drafts):
        if behind and draft.messages is None:
            ids[k] = ids[k][:-behind]
        # A text that spells the begin-of-text token would have it twice; a template is taken at its word.
        if bos is not None and draft.messages is None and ids[k][:2] == [bos, bos]:
            ids[k] = ids[k][1:]
        if not ids[k]:
            raise DataError(f"{draft.row.place}: the prompt is empty once it is encoded; take the row out")
    return [replace(draft, ids=ids[k]) for k, draft in enumerate(drafts)]


def _added_behind(tokenizer: PreTrainedTokenizerBase) -> int:
    """How many special tokens the tokenizer adds behind a text, such as an end of sequence."""
    plain = list(tokenizer("a", add_special_tokens=False, verbose=False)["input_ids"])
    whole = list(tokenizer("a", verbose=False)["input_ids"])
    starts = range(len(whole) - len(plain) + 1)
    start = next((k for k in starts if whole[k : k + len(plain)] == plain), None)
    return 0 if start is None or not plain else len(whole) - start - len(plain)


def _within_limit(
    drafts: Sequence[_Draft],
    config: PromptsConfig,
    tokenizer: PreTrainedTokenizerBase,
    template: ChatTemplate | None,
    controls: ControlStrings,
    limit: int,
    rest: str,
) -> tuple[list[_Draft], int]:
    """The drafts that stay, cut where that is chosen, and how many were cut."""
    over = [draft for draft in drafts if len(draft.ids) > limit]
    if over and config.too_long == "error":
        longest = max(len(draft.ids) for draft in over)
        raise DataError(
            f"{over[0].row.place}: the prompt has {len(over[0].ids)} tokens, over the limit of {limit} "
            f"({len(over)} of {len(drafts)} rows are over it, the longest has {longest}); "
            f"{_more_room(config, limit, rest)}, or set prompts.too_long to drop or truncate"
        )
    kept = []
    for draft in drafts:
        if len(draft.ids) <= limit:
            kept.append(draft)
        elif config.too_long == "truncate":
            if draft.messages is None:
                text, ids = _cut_text(draft, tokenizer, controls, limit)
            else:
                assert template is not None
                text, ids = template.cut(draft.messages, draft.text, limit, draft.row.place)
            kept.append(replace(draft, text=text, ids=ids))
    if not kept:
        raise DataError(
            f"all {len(drafts)} rows are over the limit of {limit} tokens, so prompts.too_long: drop leaves "
            f"none; {_more_room(config, limit, rest)}"
        )
    return kept, len(over) if config.too_long == "truncate" else 0


def _more_room(config: PromptsConfig, limit: int, rest: str) -> str:
    """What to change for a higher limit, by where the limit comes from."""
    if config.max_prompt_tokens == limit:
        return "raise prompts.max_prompt_tokens"
    return f"lower {rest} (the limit is what it leaves of the model's context)"


def _cut_text(
    draft: _Draft, tokenizer: PreTrainedTokenizerBase, controls: ControlStrings, limit: int
) -> tuple[str, list[int]]:
    """A text prompt without its middle; the special tokens that the tokenizer adds around it stay."""
    place = draft.row.place
    plain = list(tokenizer(draft.text, add_special_tokens=False, verbose=False)["input_ids"])
    starts = range(len(draft.ids) - len(plain) + 1)
    start = next((k for k in starts if draft.ids[k : k + len(plain)] == plain), None)
    if start is None:
        raise DataError(
            f"{place}: cannot be cut, since this tokenizer mixes its special tokens into the text; "
            "set prompts.too_long to drop"
        )
    before, after = draft.ids[:start], draft.ids[start + len(plain) :]
    head, tail, text = cut_middle(tokenizer, plain, limit - len(before) - len(after))
    if not head and not tail:
        raise DataError(
            f"{place}: no text would be left within {limit} tokens; set prompts.too_long to drop, or raise the limit"
        )
    lost = controls.first_id_in(plain[len(head) : len(plain) - len(tail)])
    if lost is not None:
        raise DataError(
            f"{place}: cutting the text would remove the control token {decode(tokenizer, [lost])!r} from "
            "it; give the prompt as messages, so that the template's frame is known, or set prompts.too_long "
            "to drop"
        )
    return text, [*before, *head, *tail, *after]


def _prompts(kept: Sequence[_Draft], config: PromptsConfig) -> list[Prompt]:
    columns_N = columns_for_rewards([draft.row for draft in kept], config)
    limit = config.columns.max_new_tokens
    prompts = []
    for draft, columns in zip(kept, columns_N, strict=True):
        prompts.append(
            Prompt(
                id=draft.row.id,
                source=draft.row.source,
                messages=draft.messages,
                text=draft.text,
                token_ids=np.array(draft.ids, dtype=np.int32),
                columns=columns,
                max_new_tokens=None if limit is None else draft.row.columns[limit],
            )
        )
    return prompts


def columns_for_rewards(rows: Sequence[Row], config: PromptsConfig) -> list[dict[str, Any]]:
    """Per row, every column that `prompts.columns` does not name; None where a row lacks one that others have."""
    left_out = set(config.columns.model_dump().values())
    names = dict.fromkeys(name for row in rows for name in row.columns if name not in left_out)
    return [{name: row.columns.get(name) for name in names} for row in rows]


def _blank_lines(rows: Sequence[Row]) -> int:
    """Up to the last row of each file."""
    blank = {row.source: 0 for row in rows}
    for row in rows:
        blank[row.source] = max(blank[row.source], row.blank_lines)
    return sum(blank.values())
