"""The report of run folders: what they hold, with what their configuration means and how their tokens read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from groupwise.config import LoadedConfig, load
from groupwise.config.keys import leaves
from groupwise.config.model import ModelConfig
from groupwise.errors import GroupwiseError, RunFolderError, raised
from groupwise.records.run_folder import RunFolder, read_manifest
from groupwise.report.page import build
from groupwise.report.reading import Described, read_run
from groupwise.report.tokens import Pieces
from groupwise.workbench.explain import explain
from groupwise.workbench.outfile import replacing

SIDE_BY_SIDE = "side_by_side.html"
"""The report of several runs, in the folder of the first, where no file is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A report that was written."""

    path: Path
    """The file."""
    size_bytes: int
    """Its length."""
    groups: tuple[int, ...]
    """Of each run, how many groups can be opened down to their tokens."""
    notes: tuple[str, ...]
    """What could not be read."""


def write_report(paths: Sequence[Path], output: Path | None = None) -> Written:
    """Write one HTML file about a run, or about several side by side.

    The runs may be finished, stopped, torn by a crash, or still going on.

    Args:
        paths: the run folders.
        output: the file; by default `report.html` in the run folder, or `side_by_side.html` in the first of several.

    Raises:
        RunFolderError: a path is no run folder, or the same is named twice.
        DataError: the file cannot be written.
    """
    places = [path.expanduser() for path in paths]
    for i, place in enumerate(places):
        if place.resolve() in {other.resolve() for other in places[:i]}:
            raise RunFolderError(f"{place} is named twice; name two different runs to see them side by side")
        if not place.is_dir():
            raise RunFolderError(
                f"there is no run folder {place}; `groupwise report` takes the folder that a run made"
            )
        read_manifest(RunFolder(place))
    target = output or (RunFolder(places[0]).report_file if len(places) == 1 else places[0] / SIDE_BY_SIDE)
    with replacing(target) as file:
        opened = [_opened(place) for place in places]
        runs = [
            (read_run(place, described), pieces)
            for place, (described, pieces) in zip(places, opened, strict=True)
        ]
        page = build(runs)
        file.write(page.html)
    notes = tuple(note for record, _ in runs for note in record.notes)
    return Written(path=target, size_bytes=len(page.html.encode()), groups=page.groups, notes=notes)


def _opened(path: Path) -> tuple[Described, Pieces | None]:
    """What the configuration says, and the texts of tokens; notes in place of what cannot be found."""
    try:
        loaded = load(RunFolder(path).config_file)
    except GroupwiseError as error:
        return Described(formula="", notes=(f"the configuration cannot be read: {error}",)), None
    notes = []
    try:
        formula = explain(path.resolve().name, loaded)
    except Exception as error:  # a reward or an estimator of the user's may be anything by now
        formula = ""
        notes.append(f"the formula is not shown: {_said(error)}")
    pieces, note = _pieces(path, loaded) if loaded.config.method == "rl" else (None, None)
    notes += [] if note is None else [note]
    settings = {
        key: (_plain(value), loaded.origins.get(key, "default"))
        for key, value in leaves(loaded.config.model_dump(mode="json"))
    }
    described = Described(
        formula=formula, settings=settings, steps=loaded.config.training.steps, notes=tuple(notes)
    )
    return described, pieces


def _pieces(path: Path, loaded: LoadedConfig) -> tuple[Pieces | None, str | None]:
    """Texts of tokens by the tokenizer that the run saved, else by that of its configuration."""
    from groupwise.model.load import load_tokenizer  # only here: it takes seconds

    saved = RunFolder(path).model_dir
    config = loaded.config.model
    if (saved / "tokenizer.json").is_file():
        config = ModelConfig(name=str(saved.resolve()), trust_remote_code=config.trust_remote_code)
    try:
        tokenizer = load_tokenizer(config, base=loaded.base)
    except Exception as error:
        return None, f"tokens are shown by their ids, since their tokenizer cannot be read: {_said(error)}"

    def decode(token_ids: Sequence[int]) -> str:
        text: str = tokenizer.decode(
            list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    return lambda token_ids: pieces_of(token_ids, decode), None


def pieces_of(token_ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[str]:
    """What each token adds to the text; joined they are the text of all.

    A token is decoded behind the one before it, since some tokenizers spell a token otherwise at the beginning of a
    text. Tokens that together spell one character have it at the last of them, and the empty text before.

    Args:
        token_ids: in order.
        decode: ids to text.
    """
    pieces: list[str] = []
    before = done = 0  # tokens from `before` to `done` are the context of what follows
    told = 0  # characters of the text from `before` on that are in the pieces
    for count in range(1, len(token_ids) + 1):
        text = decode(token_ids[before:count])
        settled = text if count == len(token_ids) else _without_open_end(text)
        pieces.append(settled[told:])
        told = max(told, len(settled))
        if len(settled) == len(text) >= told:
            before, done = done, count
            told = len(decode(token_ids[before:done]))
    return pieces


def _without_open_end(text: str) -> str:
    """Without the marks at the end that bytes still to come may turn into a character: of its four, three at most."""
    open_end = len(text) - len(text.rstrip("\ufffd"))
    return text[: len(text) - min(open_end, 3)]


def _plain(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, GroupwiseError) else raised(error)
