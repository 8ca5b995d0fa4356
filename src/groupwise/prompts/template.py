"""A model's own chat template, with what people wrote kept apart from what the template wrote."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from groupwise.errors import ConfigError, DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TAKEN = {
    "add_generation_prompt": "prompts always end with the start of the model's turn",
    "chat_template": "use model.chat_template",
    "continue_final_message": "prompts always end with the start of the model's turn",
    "conversation": "messages come from the data",
    "max_length": "use prompts.max_prompt_tokens",
    "messages": "messages come from the data",
    "padding": "prompts are never padded here",
    "return_assistant_tokens_mask": "prompts hold nothing that is trained",
    "return_dict": "the result is always token ids",
    "return_tensors": "the result is always token ids",
    "sanitize_control_tokens": "control strings in messages are always encoded as ordinary text",
    "tokenize": "the result is always token ids",
    "tokenizer_kwargs": "the tokenizer's defaults are used",
    "truncation": "use prompts.too_long",
}
_REPLACEMENT = "\ufffd"


class ControlStrings:
    """The strings that a tokenizer turns into control tokens, wherever in a text they stand.

    They are its special tokens, and those of its other added tokens that the chat template itself writes
    around turns (some models mark turns with tokens that are not declared special). Other added tokens, such
    as `<think>` where it is an ordinary one, and runs of white space are left as the tokenizer has them.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, frame: str = "") -> None:
        """Read the tokenizer's added tokens. `frame`: what its template writes around the turns of a chat."""
        self._tokenizer = tokenizer
        chosen: dict[int, str] = {
            int(i): token.content
            for i, token in tokenizer.added_tokens_decoder.items()
            if token.content.strip() and (token.special or token.content in frame)
        }
        # The unknown token's id also stands for characters outside the vocabulary, so it forges nothing.
        self._ids = frozenset(chosen) - {tokenizer.unk_token_id}
        longest_first = sorted(set(chosen.values()), key=lambda text: (-len(text), text))
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def first_in(self, values: Iterable[Any]) -> str | None:
        """The first control string in a text among the values, nested ones and keys included; or None."""
        return next((found[0] for text in _texts(values) if (found := self._pattern.search(text))), None)

    def first_id_in(self, ids: Sequence[int]) -> int | None:
        """The first control token's id among the ids, or None."""
        return next((i for i in ids if i in self._ids), None)

    def plain_ids(self, text: str, place: str) -> list[int]:
        """The ids of a text with control strings read as ordinary characters.

        A tokenizer only splits declared special tokens on request, so where that leaves a control token the
        text is encoded in parts, cut within each control string.

        Raises:
            DataError: the tokenizer makes a control token all the same.
        """
        cuts = [found.start() + 1 for found in self._pattern.finditer(text)]
        parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        for attempt in ([text], parts):
            ids: list[int] = []
            for part in filter(None, attempt):
                encoded = self._tokenizer(
                    part, add_special_tokens=False, split_special_tokens=True, verbose=False
                )
                ids += encoded["input_ids"]
            if self._ids.isdisjoint(ids):
                return ids
        raise DataError(
            f"{place}: this tokenizer cannot encode {self.first_in([text])!r} as ordinary text; take it out "
            "of the row"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A stretch of a rendered chat."""

    text: str
    """As the template wrote it."""
    ids: tuple[int, ...]
    """Encoded on its own."""
    message: int | None
    """Whose content it is, counted from 0; None for what is around the contents that were looked for."""


class ChatTemplate:
    """The tokenizer's chat template with the run's arguments for it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, arguments: Mapping[str, Any]) -> None:
        """Bind a tokenizer and `prompts.chat_template_kwargs`.

        Raises:
            ConfigError: the tokenizer has no chat template, or an argument is one that is decided elsewhere.
        """
        if tokenizer.chat_template is None:
            raise ConfigError(
                "the prompts are chat messages, but the model's tokenizer has no chat template; set "
                "model.chat_template to a Jinja file, choose a chat model, or give text prompts with "
                "prompts.chat: false"
            )
        for name in arguments:
            if name in _TAKEN:
                raise ConfigError(f"prompts.chat_template_kwargs.{name} cannot be set: {_TAKEN[name]}")
        self._tokenizer = tokenizer
        self._arguments = dict(arguments)
        # The text around contents is often the same from row to row.
        self._frame_ids = functools.lru_cache(maxsize=1024)(self._encode_frame)
        self.controls = ControlStrings(tokenizer, self._frame())
        """Strings that would forge or end turns if they were not kept apart."""

    def render(self, messages: Sequence[Mapping[str, Any]], place: str) -> str:
        """The text that the model reads, ending with the start of its own turn.

        Raises:
            DataError: the template refuses the messages, for example a system turn that the model does not
                know.
        """
        try:
            text: str = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=True,
                **self._arguments,
            )
        except Exception as error:  # a template is a program of the model's maker and raises what it likes
            roles = ", ".join(message["role"] for message in messages)
            raise DataError(
                f"{place}: the model's chat template refuses turns of {roles}: "
                f"{error or type(error).__name__}; change the turns, prompts.system_prompt or "
                "prompts.chat_template_kwargs, or set model.chat_template"
            ) from error
        return text

    def holds_control(self, messages: Sequence[Mapping[str, Any]], place: str) -> bool:
        """True when the content of a message holds a control string.

        Raises:
            DataError: a field other than the content holds one; what the template makes of it cannot be
                followed.
        """
        for number, message in enumerate(messages, start=1):
            others = [value for key, value in message.items() if key != "content"]
            found = self.controls.first_in(others)
            if found is not None:
                raise DataError(
                    f"{place}: message {number} holds the control string {found!r} outside its content; take "
                    "it out"
                )
        return self.controls.first_in(message["content"] for message in messages) is not None

    def encode_apart(self, messages: Sequence[Mapping[str, Any]], text: str, place: str) -> list[int]:
        """The ids of messages whose contents hold control strings, with those read as ordinary text.

        Only contents with control strings are encoded on their own; what is around them is encoded as always,
        so the number of true turn ends is that of the turns.

        Args:
            messages: the turns.
            text: what `render` gave for them.
            place: where the row is, for errors.

        Raises:
            DataError: the template rewrites such a content, so it cannot be told from the template's own
                text.
        """
        marked = [i for i, m in enumerate(messages) if self.controls.first_in([m["content"]]) is not None]
        return [i for piece in self._pieces(messages, text, marked, place) for i in piece.ids]

    def cut(
        self, messages: Sequence[Mapping[str, Any]], text: str, limit_tokens: int, place: str
    ) -> tuple[str, list[int]]:
        """Messages over the limit, with the middle of the last turn's content left out.

        The cut is made on ids: system turn, earlier turns, begin-of-text and the start of the model's turn
        stay whole. Of the n ids that are left for the content, ceil(n / 2) are its first and floor(n / 2) its
        last, less those of a character that would be cut apart.

        Args:
            messages: the turns.
            text: what `render` gave for them.
            limit_tokens: how many tokens may stay in all.
            place: where the row is, for errors.

        Returns:
            The text as the model reads it, and at most `limit_tokens` ids.

        Raises:
            DataError: no room is left for the content, or the template rewrites it.
        """
        last = len(messages) - 1
        marked = [
            i
            for i, m in enumerate(messages)
            if i == last or self.controls.first_in([m["content"]]) is not None
        ]
        pieces = self._pieces(messages, text, marked, place)
        where = [k for k, piece in enumerate(pieces) if piece.message == last]
        if len(where) != 1:
            raise DataError(
                f"{place}: the chat template writes the last turn {len(where)} times, so it cannot be cut; "
                "set prompts.too_long to drop"
            )
        before, content, after = pieces[: where[0]], pieces[where[0]], pieces[where[0] + 1 :]
        frame = sum(len(piece.ids) for piece in (*before, *after))
        head, tail, kept_text = cut_middle(self._tokenizer, content.ids, limit_tokens - frame)
        if not head and not tail:
            raise DataError(
                f"{place}: cannot be cut to {limit_tokens} tokens: all but the content of the last turn "
                f"takes {frame}; raise the limit or set prompts.too_long to drop"
            )
        cut = [*before, _Piece(text=kept_text, ids=(*head, *tail), message=last), *after]
        return "".join(piece.text for piece in cut), [i for piece in cut for i in piece.ids]

    def _frame(self) -> str:
        """What the template writes around the turns of a made-up chat, to see which tokens mark turns."""
        user, answer = {"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}
        for turns in ([user, answer, user], [user]):
            try:
                text: str = self._tokenizer.apply_chat_template(turns, tokenize=False, **self._arguments)
            except Exception:  # what the template refuses in the data, it says when the data is rendered
                continue
            return text
        return ""

    def _encode_frame(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _pieces(
        self, messages: Sequence[Mapping[str, Any]], text: str, marked: Collection[int], place: str
    ) -> list[_Piece]:
        """The rendered text cut where marked contents begin and end, each piece encoded on its own.

        Raises:
            DataError: the template rewrites a marked content.
        """
        parts = self._split(messages, text, marked, place)
        if parts is None:
            control = self.controls.first_in(messages[i]["content"] for i in marked)
            what = (
                "the last turn, which is over the limit"
                if control is None
                else f"a content with {control!r} in it"
            )
            raise DataError(
                f"{place}: the chat template rewrites {what}, so that it cannot be told from the template's own "
                "text; change the row or take it out"
            )
        return [
            _Piece(
                text=part,
                ids=self._frame_ids(part) if owner is None else tuple(self.controls.plain_ids(part, place)),
                message=owner,
            )
            for part, owner in parts
            if part
        ]

    def _split(
        self, messages: Sequence[Mapping[str, Any]], text: str, marked: Collection[int], place: str
    ) -> list[tuple[str, int | None]] | None:
        """(part, whose content it is or None) in order, or None where the template rewrites a marked content.

        Contents are rendered between marks that occur nowhere else. The marks go inside surrounding white
        space, since many templates strip contents; without them the text must be the one rendered from the
        messages alone.
        """
        mark = "cutMark"
        while any(mark in other for other in _texts([messages, text])):
            mark += "k"
        with_marks = [
            {**m, "content": _between(m["content"], f"{mark}B{i}X", f"{mark}E{i}X")} if i in marked else m
            for i, m in enumerate(messages)
        ]
        first, *rest = re.split(rf"{mark}([BE])(\d+)X", self.render(with_marks, place))
        parts: list[tuple[str, int | None]] = [(first, None)]
        inside: int | None = None
        for kind, number, part in zip(rest[0::3], rest[1::3], rest[2::3], strict=True):
            expected = None if kind == "B" else int(number)
            if inside != expected:
                return None
            inside = int(number) if kind == "B" else None
            parts.append((part, inside))
        if inside is not None or "".join(part for part, _ in parts) != text:
            return None
        return parts


def cut_middle(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], room: int
) -> tuple[list[int], list[int], str]:
    """The first ceil(room / 2) and last floor(room / 2) ids, less those of a character the cut would halve.

    Args:
        tokenizer: to see whether a character is whole.
        ids: more than `room` of them.
        room: how many may stay; nothing stays below 1.

    Returns:
        The ids at the beginning, those at the end, and the text of both.
    """
    room = max(room, 0)
    head, tail = list(ids[: room - room // 2]), list(ids[len(ids) - room // 2 :])
    begin, end = decode(tokenizer, head), decode(tokenizer, tail)
    # Up to three of a character's four bytes may be left, and byte-level tokenizers can give each its own token.
    for _ in range(3):
        if head and begin.endswith(_REPLACEMENT):
            head = head[:-1]
            begin = decode(tokenizer, head)
        if tail and end.startswith(_REPLACEMENT):
            tail = tail[1:]
            end = decode(tokenizer, tail)
    return head, tail, begin + end


def decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """The text of ids with every control token written out and no spaces tidied away."""
    text: str = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


def _between(content: str, begin: str, end: str) -> str:
    core = content.strip()
    lead = content[: len(content) - len(content.lstrip())]
    return f"{lead}{begin}{core}{end}{content[len(lead) + len(core) :]}"


def _texts(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from _texts(value.keys())
            yield from _texts(value.values())
        elif isinstance(value, list | tuple):
            yield from _texts(value)
