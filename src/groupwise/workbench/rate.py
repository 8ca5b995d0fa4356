"""Blinded rating sheets for people, and what comes back."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.evaluate.intervals import Estimate
from groupwise.evaluate.ratings import Preference, Rated, krippendorff_alpha, means, preferences
from groupwise.prompts.formats import LONGEST_FIELD
from groupwise.workbench.outfile import replacing

LOWEST, HIGHEST = 1, 5
"""The scale."""
QUESTION = "How good is the response to the question?"
SHEET_CSV, SHEET_HTML, KEY = "sheet.csv", "sheet.html", "key.json"

_LETTERS = "bcdfghjkmnpqrstvwxz"
"""Of codes: a spreadsheet takes none of them for a number, a date or a word."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One prompt with a model's responses."""

    id: str
    """Of the prompt."""
    prompt: str
    """Its text."""
    responses: list[str]
    """In order."""


def responses_in(file: Path) -> list[Answered]:
    """The responses that `groupwise eval --output` wrote.

    Raises:
        DataError: the file is not there, or holds something else.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return [
            Answered(
                id=str(each["id"]),
                prompt=readable(each["messages"], str(each["prompt"])),
                responses=[_text_of(response) for response in each["responses"]],
            )
            for each in data["prompts"]
        ]
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file} is not what `groupwise eval --output` writes ({type(error).__name__}: {error}); name such a "
            "file, or a run folder"
        ) from None


def _text_of(response: Mapping[str, Any]) -> str:
    if not isinstance(response["text"], str):
        raise TypeError(f"the text of a response is {response['text']!r:.40}")
    return response["text"]


def readable(messages: Sequence[Mapping[str, Any]] | None, text: str) -> str:
    """A prompt for people: a single question as it was asked, a conversation with its speakers.

    Args:
        messages: of a chat, without the marks of its template; None for a text prompt.
        text: what the model reads.
    """
    if messages is None:
        return text
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n\n".join(f"{each['role']}: {each['content']}" for each in messages)


def export(
    answered: Mapping[str, Sequence[Answered]],
    folder: Path,
    *,
    prompts: int = 30,
    per_prompt: int = 1,
    seed: int = 0,
    question: str = QUESTION,
) -> int:
    """Write a sheet without the models' names, in an order by lot, and the key to it.

    Args:
        answered: by model, the responses to each prompt.
        folder: gets `sheet.csv` and `sheet.html`, which go to raters, and `key.json`, which does not.
        prompts: how many at most, drawn from those that every model answered.
        per_prompt: responses of each model to each prompt at most.
        seed: decides which and in which order.
        question: what raters are asked.

    Returns:
        How many responses the sheet holds.

    Raises:
        DataError: no prompt that all models answered, a prompt without a response, a sheet is there already, which may
            be with raters, or the folder cannot be made.
    """
    taken = next((name for name in (KEY, SHEET_CSV, SHEET_HTML) if (folder / name).exists()), None)
    if taken is not None:
        raise DataError(
            f"{folder} holds a {taken} already, without which ratings of it could not be read; name another folder"
        )
    by_text = {model: {each.prompt: each for each in given} for model, given in answered.items()}
    first = next(iter(by_text.values()))
    shared = [text for text in first if all(text in each for each in by_text.values())]
    if not shared:
        raise DataError(
            f"no prompt was answered by all of {', '.join(answered)}; measure them on the same data with --data"
        )
    empty = next(
        (model for model, each in by_text.items() if not all(each[t].responses for t in shared)), None
    )
    if empty is not None:
        raise DataError(
            f"{empty} has prompts without a response; measure it anew with `groupwise eval --output`"
        )
    lot = random.Random(seed)
    chosen = sorted(lot.sample(range(len(shared)), min(prompts, len(shared))))
    items = [
        # One id for all models: what it is called may differ between the data that each was measured on.
        {"model": model, "prompt_id": first[shared[i]].id, "prompt": shared[i], "response": response}
        for i in chosen
        for model in by_text
        for response in by_text[model][shared[i]].responses[:per_prompt]
    ]
    lot.shuffle(items)
    codes = _codes(len(items) + 1, lot)
    named = [{"item": code, **item} for code, item in zip(codes[1:], items, strict=True)]
    key = {"sheet": codes[0], "question": question, "low": LOWEST, "high": HIGHEST, "items": named}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be made: {error.strerror or error}; name another folder") from None
    for name, text in ((KEY, json.dumps(key, ensure_ascii=False, indent=1) + "\n"), *_sheets(key)):
        with replacing(folder / name) as file:
            file.write(text)
    return len(named)


def _codes(count: int, lot: random.Random) -> list[str]:
    """So many different codes of six letters."""
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(lot.choices(_LETTERS, k=6))] = None
    return list(found)


def _sheets(key: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What raters see, as (file name, text)."""
    seen = [{name: item[name] for name in ("item", "prompt", "response")} for item in key["items"]]
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\r\n")
    writer.writerow(["item", "prompt", "response", f"rating ({LOWEST} worst to {HIGHEST} best)", "note"])
    for item in seen:
        cells = [item["item"], item["prompt"], item["response"]]
        writer.writerow([*(f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in cells), "", ""])
    # The mark at its beginning tells spreadsheets that it is UTF-8.
    yield SHEET_CSV, "\ufeff" + table.getvalue()
    data = json.dumps({**{name: key[name] for name in ("sheet", "question", "low", "high")}, "items": seen})
    page = (resources.files("groupwise.workbench") / "rating_sheet.html").read_text(encoding="utf-8")
    yield SHEET_HTML, page.replace("@DATA@", data.replace("<", "\\u003c"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """What came back of a sheet."""

    items: list[Rated]
    """Every response, with its ratings."""
    raters: dict[str, int]
    """How many ratings each gave."""

    @property
    def alpha(self) -> dict[str, float]:
        """Krippendorff's alpha by level of measurement; NaN where it is not defined."""
        values = [list(item.ratings.values()) for item in self.items]
        return {level: krippendorff_alpha(values, level) for level in ("ordinal", "interval", "nominal")}

    def lines(self) -> list[str]:
        """The numbers for people."""
        said = ", ".join(f"{name} {count}" for name, count in self.raters.items())
        rows = [("raters", f"{len(self.raters)} ({said} of {len(self.items)} responses)")]
        rows += [
            (model, f"{each.text('.2f')}, mean of {LOWEST} to {HIGHEST}")
            for model, each in self.means().items()
        ]
        rows += [
            (f"{each.model} above {each.other}", f"{each.share.text()} of {each.prompts} prompts, ties half")
            for each in self.preferences()
        ]
        alpha = self.alpha["ordinal"]
        if len(self.raters) < 2:
            rows.append(("agreement", "one rater, so nothing is known of it"))
        elif alpha != alpha:
            rows.append(("agreement", "not defined: no response was rated twice, or all ratings are equal"))
        else:
            verdict = "good" if alpha >= 0.8 else "fair" if alpha >= 0.667 else "too little to conclude from"
            rows.append(("agreement", f"Krippendorff's alpha {alpha:.3f} (ordinal): {verdict}"))
        width = max(len(name) for name, _ in rows)
        return [f"{name:<{width}}  {value}" for name, value in rows]

    def means(self) -> dict[str, Estimate]:
        """See `evaluate.ratings.means`."""
        return means(self.items)

    def preferences(self) -> list[Preference]:
        """See `evaluate.ratings.preferences`."""
        return preferences(self.items)

    def json(self) -> str:
        """The same as JSON text."""
        alpha = {level: None if value != value else value for level, value in self.alpha.items()}
        data = {
            "raters": self.raters,
            "means": {model: each.data() for model, each in self.means().items()},
            "preferences": [
                {
                    "model": each.model,
                    "other": each.other,
                    "share": each.share.data(),
                    "prompts": each.prompts,
                }
                for each in self.preferences()
            ],
            "alpha": alpha,
            "items": [
                {"model": item.model, "prompt": item.prompt, "ratings": dict(item.ratings)}
                for item in self.items
            ],
        }
        return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def read_ratings(folder: Path, files: Sequence[Path]) -> Ratings:
    """The ratings of a sheet: files that its page saved, or copies of its CSV that were filled in.

    The rater of a CSV is the name of its file.

    Args:
        folder: that the sheet was exported to, with its `key.json`.
        files: one per rater.

    Raises:
        DataError: no such file, a file of another sheet, an item that is not in it, a rating outside the scale, two
            files of one rater; names the file, the place and the remedy.
    """
    key = _key(folder)
    items = {str(item["item"]): item for item in key["items"]}
    given: dict[str, dict[str, int]] = {code: {} for code in items}
    raters: dict[str, int] = {}
    for file in files:
        rater, ratings = _read(file, str(key["sheet"]))
        if rater in raters:
            raise DataError(
                f"{file}: {rater} has rated in another file already; merge the two, or name the rater otherwise"
            )
        for code, (rating, place) in ratings.items():
            if code not in items:
                raise DataError(
                    f"{place}: there is no item {code!r} in {folder / KEY}; is it another sheet's?"
                )
            given[code][rater] = rating
        raters[rater] = len(ratings)
    if not any(raters.values()):
        raise DataError(f"no response is rated in {', '.join(map(str, files))}; fill in the column rating")
    return Ratings(
        items=[
            Rated(model=str(item["model"]), prompt=str(item["prompt_id"]), ratings=given[code])
            for code, item in items.items()
        ],
        raters=raters,
    )


def _key(folder: Path) -> dict[str, Any]:
    file = folder / KEY
    try:
        key = json.loads(file.read_text(encoding="utf-8"))
        if not {"sheet", "items"} <= set(key):
            raise ValueError("no sheet in it")
        if not all({"item", "model", "prompt_id"} <= set(item) for item in key["items"]):
            raise ValueError("an item without its code, model or prompt")
    except OSError as error:
        raise DataError(
            f"{file} cannot be read: {error.strerror or error}; name the folder that `groupwise rate export` made"
        ) from None
    except (ValueError, TypeError) as error:
        raise DataError(f"{file} is not the key of a sheet: {error}") from None
    return dict(key)


def _read(file: Path, sheet: str) -> tuple[str, dict[str, tuple[int, str]]]:
    """The rater, and by item the rating with its place in the file."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DataError(f"{file} is not UTF-8; save it as CSV UTF-8") from None
    return (
        _of_page(text, file, sheet) if file.suffix.lower() == ".json" else (file.stem, _of_table(text, file))
    )


def _of_page(text: str, file: Path, sheet: str) -> tuple[str, dict[str, tuple[int, str]]]:
    try:
        data = json.loads(text)
        rater, of_sheet, given = str(data["rater"]), str(data["sheet"]), dict(data["ratings"])
        found = {
            code: (_rating(each["rating"], f"{file}, item {code}"), f"{file}") for code, each in given.items()
        }
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file} is not what the rating page saves ({type(error).__name__}: {error}); have it saved again"
        ) from None
    if of_sheet != sheet:
        raise DataError(
            f"{file} is of the sheet {of_sheet}, and this is {sheet}; name the folder it was exported to"
        )
    return rater, found


def _of_table(text: str, file: Path) -> dict[str, tuple[int, str]]:
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)  # spreadsheets of many countries write semicolons
    csv.field_size_limit(LONGEST_FIELD)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    found: dict[str, tuple[int, str]] = {}
    try:
        heads = [head.strip().casefold() for head in next(rows, [])]
        rating_at = next((i for i, head in enumerate(heads) if head.startswith("rating")), None)
        if "item" not in heads or rating_at is None:
            raise DataError(f"{file} has no columns item and rating; fill in a copy of {SHEET_CSV}")
        item_at = heads.index("item")
        for cells in rows:
            place = f"{file} line {rows.line_num}"
            rating = cells[rating_at].strip() if len(cells) > rating_at else ""
            if not rating:
                continue
            code = cells[item_at].strip().lstrip("'").casefold() if len(cells) > item_at else ""
            if not code:
                raise DataError(f"{place}: a rating without its item; fill in a copy of {SHEET_CSV}")
            if code in found:
                raise DataError(f"{place}: the item {code} is rated twice; keep one of the rows")
            found[code] = (_rating(rating, place), place)
    except csv.Error as error:
        raise DataError(f"{file} line {rows.line_num}: {error}; save the sheet as CSV again") from None
    return found


def _rating(value: Any, place: str) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, bool) or number not in range(LOWEST, HIGHEST + 1):
        raise DataError(f"{place}: the rating {value!r:.40} is not a whole number from {LOWEST} to {HIGHEST}")
    return int(number)
