"""A configuration and variants of it that each change one thing, run on the same prompts with the same seeds."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from filelock import FileLock, Timeout

from groupwise.config import LoadedConfig, load
from groupwise.errors import CheckpointError, ConfigError, RunFolderError, TrainingError
from groupwise.records.replace import replace_file
from groupwise.records.run_folder import RunFolder
from groupwise.training.inputs import read_inputs, refuse_early
from groupwise.workbench.comparison import (
    BASE,
    Comparison,
    Outcome,
    outcome_of,
    read_outcome,
    write_outcome,
)
from groupwise.workbench.curves import Curve, chart

if TYPE_CHECKING:
    from groupwise.config import RunConfig

MEASUREMENTS = 10
"""Held-out evaluations of a run after the one at its start, where evaluate.every_steps does not say."""

_QUIET = ("run.sinks=[]", "run.save_rollouts=false", "run.save_model=false")
"""What a comparison sets unless the command says otherwise: the tables are of its metrics alone."""

_SET_HERE = {
    "run.seed": "every variant is run with the same seeds; say how many with --seeds, and the first with run.seed=N",
    "run.dir": "runs go into the folder of the comparison; name it with --output",
}
"""What is no variant, and how it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One run that there will be."""

    variant: str
    """What it changes, as `key=value`; `base` for nothing."""
    seed: int
    """Of the run."""
    loaded: LoadedConfig
    """Its configuration."""
    folder: RunFolder
    """Where it goes."""

    @property
    def result(self) -> Path:
        """Written when it has ended."""
        return self.folder.path.with_suffix(".json")

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.variant}, seed {self.seed}"


def plan(
    source: str | Path,
    vary: Sequence[str],
    *,
    seeds: int,
    folder: Path,
    overrides: Sequence[str] = (),
) -> list[Planned]:
    """Every run of a comparison, seed by seed, so that an interrupted one has whole seeds.

    Args:
        source: the configuration.
        vary: `key=value,value,...`, one or more; each value makes a variant that differs from the base in it alone.
        seeds: runs per variant, with the base's `run.seed` and the numbers after it.
        folder: of the comparison.
        overrides: `key=value` for all runs.

    Raises:
        ConfigError: a value that cannot be, two that come to the same configuration, nothing held out, a variant that
            would be measured by something else than the base.
    """
    base = load(source, [*_QUIET, *overrides])
    words = _measuring(base)
    base = load(source, [*_QUIET, *words, *overrides])
    _refuse(base, seeds)
    variants: dict[str, LoadedConfig] = {BASE: base}
    for word in _variants(vary):
        if (key := word.partition("=")[0]) in _SET_HERE:
            raise ConfigError(f"--vary {key}: {_SET_HERE[key]}")
        loaded = load(source, [*_QUIET, *words, *overrides, word])
        same = next((name for name, other in variants.items() if other.config == loaded.config), None)
        if same == BASE:
            continue  # named for the reader's sake, and there already
        if same is not None:
            raise ConfigError(f"--vary: {word} and {same} come to the same configuration; leave one out")
        _refuse(loaded, seeds)
        _refuse_other_measure(word, loaded.config, base.config)
        variants[word] = loaded
    if len(variants) == 1:
        raise ConfigError(
            f"--vary {' '.join(vary)} changes nothing of {source}, so there is nothing to compare; name another value"
        )
    first = base.config.run.seed
    return [
        Planned(
            variant=name,
            seed=seed,
            loaded=_placed(loaded, folder / _file_name(name) / f"seed-{seed}", seed),
            folder=RunFolder((folder / _file_name(name) / f"seed-{seed}").absolute()),
        )
        for seed in range(first, first + seeds)
        for name, loaded in variants.items()
    ]


def compare(
    runs: Sequence[Planned],
    *,
    metric: str,
    folder: Path,
    most: int | None = None,
    say: Callable[[str], None] = print,
) -> Comparison:
    """Make the runs that are not there yet, go on with those that were interrupted, and write what came out.

    Several processes may work on one comparison: each takes runs that no other one is making.

    Args:
        runs: as planned.
        metric: the held-out metric that is compared.
        folder: of the comparison; gets `table.md`, `results.json` and `curves.svg`.
        most: make at most so many runs now; None for all.
        say: told of every run.

    Raises:
        RunFolderError: a run that is there has other settings or other data than the one planned, or the folder is a
            run's own or cannot be made.
        ConfigError: the runs do not measure the metric; names those that they do.
        GroupwiseError: a run cannot begin.
    """
    made = 0
    for planned in runs:
        _refuse_metric(metric, planned.loaded)
        _refuse_other_settings(planned)
    _refuse_folder(folder)
    _refuse_inputs(runs)
    for planned in runs:
        if most is not None and made >= most:
            break
        if planned.result.exists():
            continue
        with _held(planned) as mine:
            if not mine or planned.result.exists():
                continue
            outcome = _made(planned, metric, say)
            write_outcome(outcome, planned.result)
            _tidy(planned)
            made += 1
            done = sum(each.result.exists() for each in runs)
            say(
                f"{done}/{len(runs)}  {planned.name}: {metric} {outcome.curve[0][1]:.3f} to {outcome.final:.3f}, "
                f"{outcome.seconds:.0f} s" + (f"; ended early: {outcome.failure}" if outcome.failure else "")
            )
    found = collected(runs, metric=metric)
    write(found, folder)
    return found


def collected(runs: Sequence[Planned], *, metric: str) -> Comparison:
    """The outcomes of the runs that have ended.

    Raises:
        RunFolderError: none has, or they were made on different data.
    """
    outcomes: dict[str, list[Outcome]] = {each.variant: [] for each in runs}
    for planned in runs:
        if planned.result.exists():
            outcome = read_outcome(planned.result)
            if outcome.metric != metric:
                outcome = outcome_of(
                    planned.folder,
                    variant=planned.variant,
                    seed=planned.seed,
                    metric=metric,
                    failure=outcome.failure,
                )
            outcomes[planned.variant].append(outcome)
    ended = [outcome for each in outcomes.values() for outcome in each]
    if not ended:
        raise RunFolderError("no run of the comparison has ended yet; the same command goes on")
    seen: dict[str, tuple[Any, Outcome]] = {}
    for each in ended:
        for name, hashed in each.data.items():
            first, earlier = seen.setdefault(name, (hashed, each))
            if hashed != first:
                raise RunFolderError(
                    f"{each.variant}, seed {each.seed}, was made on other data than {earlier.variant}, seed "
                    f"{earlier.seed}: {name} has changed between them; remove one, or name another folder"
                )
    return Comparison(
        metric=metric, outcomes={name: each for name, each in outcomes.items() if each}, wanted=len(runs)
    )


def write(found: Comparison, folder: Path) -> None:
    """Write `table.md`, `results.json` and `curves.svg` into the folder.

    Raises:
        RunFolderError: they cannot be written.
    """
    sentences = "".join(f"- {sentence}\n" for sentence in found.sentences())
    texts = {
        "table.md": f"{found.table()}\n\n{sentences}",
        "results.json": json.dumps(found.data(), indent=1, allow_nan=False) + "\n",
        "curves.svg": drawn(found),
    }
    for name, text in texts.items():
        replace_file(folder / name, partial(_put, text.encode()))


def _put(content: bytes, file: BinaryIO) -> None:
    file.write(content)


def drawn(found: Comparison) -> str:
    """The held-out metric by step, the mean over seeds with their range, as SVG."""
    curves = []
    keys = {name.partition("=")[0] for name in found.outcomes if name != BASE}
    for name, outcomes in found.outcomes.items():
        points = []
        for step in sorted({step for each in outcomes for step, _ in each.curve}):
            values = [
                value for each in outcomes for at, value in each.curve if at == step and math.isfinite(value)
            ]
            if values:
                points.append((float(step), sum(values) / len(values), min(values), max(values)))
        curves.append(Curve(name=name.partition("=")[2] or name if len(keys) == 1 else name, points=points))
    return chart(curves, x_label="step", y_label=found.metric)


def _made(planned: Planned, metric: str, say: Callable[[str], None]) -> Outcome:
    """Train to the end, from a checkpoint where there is one."""
    failure = None
    try:
        run = _ready(planned, say)
        from groupwise.training import loop  # imports torch, so after what is told before that

        loop.train(run)
    except TrainingError as error:
        failure = str(error)
    return outcome_of(
        planned.folder, variant=planned.variant, seed=planned.seed, metric=metric, failure=failure
    )


def _ready(planned: Planned, say: Callable[[str], None]) -> Any:
    if planned.folder.manifest_file.exists():
        from groupwise.training import start
        from groupwise.training.resume import open_run

        try:
            loaded, resumed = open_run(planned.folder.path)
            say(f"{planned.name}: goes on from {resumed.checkpoint.position}")
            return start.resume(loaded, resumed)
        except CheckpointError:
            say(f"{planned.name}: begins anew, since it was interrupted before its first checkpoint")
    inputs = read_inputs(planned.loaded)
    refuse_early(planned.loaded)
    from groupwise.training.setup import assemble  # imports torch, so what is wrong is told before

    return assemble(inputs)


def _tidy(planned: Planned) -> None:
    """Remove the checkpoints of a run that has ended, each several times the size of the model."""
    from groupwise.checkpoint.save import remove_checkpoint, saved_checkpoints

    if not planned.loaded.config.run.save_model:
        for _, checkpoint in saved_checkpoints(planned.folder.checkpoints_dir):
            remove_checkpoint(checkpoint)


@contextmanager
def _held(planned: Planned) -> Iterator[bool]:
    """Whether this process may make the run: no other one is at it."""
    lock = FileLock(planned.folder.path.with_suffix(".lock"))
    planned.folder.path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _refuse_folder(folder: Path) -> None:
    """The folder must be one that can be made, and no single run's."""
    if RunFolder(folder).manifest_file.exists():
        raise RunFolderError(
            f"{folder} is the folder of a run; name another one for the comparison with --output"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(
            f"--output {folder}: the folder cannot be made: {error.strerror or error}; name another one"
        ) from None


def _refuse_inputs(runs: Sequence[Planned]) -> None:
    """What a variant's data, rewards or model lack is told before hours go into the runs of another."""
    seen: set[str] = set()
    for planned in runs:
        if planned.variant not in seen and not planned.result.exists():
            seen.add(planned.variant)
            read_inputs(planned.loaded)
            refuse_early(planned.loaded)


def _refuse_other_settings(planned: Planned) -> None:
    """A run that is there must be the one that is planned."""
    if not planned.folder.config_file.exists():
        return
    there, wanted = load(planned.folder.config_file).config, planned.loaded.config
    if _comparable(there) != _comparable(wanted):
        key = next(
            key
            for key, value in _comparable(wanted).items()
            if _comparable(there).get(key, "absent") != value
        )
        raise RunFolderError(
            f"{planned.folder.shown} was made with another section {key!r} than is asked for now; remove it, or name "
            "another folder with --output"
        )


def _comparable(config: Any) -> dict[str, Any]:
    tree: dict[str, Any] = config.model_dump(mode="json")
    for key in ("dir", "base", "overwrite", "sinks"):
        tree["run"].pop(key)
    return tree


def _measuring(base: LoadedConfig) -> list[str]:
    """Words for held-out evaluations along the run."""
    steps = base.config.training.steps
    if base.config.evaluate.every_steps is not None or steps is None or not base.config.prompts.held_out:
        return []
    return [f"evaluate.every_steps={max(1, steps // MEASUREMENTS)}"]


def _refuse(loaded: LoadedConfig, seeds: int) -> None:
    config = loaded.config
    if config.method != "rl":
        raise ConfigError(f"method is {config.method}; runs are compared of method rl")
    if not config.prompts.held_out or not config.evaluate.at_end:
        raise ConfigError(
            "runs are compared by their held-out results, so prompts.held_out is needed and evaluate.at_end stays true"
        )
    if seeds < 1:
        raise ConfigError(f"--seeds is {seeds}; at least 1 is needed, and 3 to tell a difference from noise")


def _refuse_other_measure(word: str, config: RunConfig, base: RunConfig) -> None:
    """What variants are compared by must be one thing, or the table compares the measures and not the runs."""
    along = {"every_steps", "at_start"}
    if config.evaluate.model_dump(exclude=along) != base.evaluate.model_dump(exclude=along):
        what = "section evaluate"
    elif config.prompts.held_out != base.prompts.held_out:
        what = "prompts.held_out"
    elif not config.evaluate.rewards and config.rewards != base.rewards:
        raise ConfigError(
            f"--vary {word:.80}: held-out responses are judged by the training rewards where evaluate.rewards is "
            "empty, so this variant would be judged by others than the base; set evaluate.rewards for all"
        )
    else:
        return
    raise ConfigError(
        f"--vary {word:.80}: with another {what} this variant would be measured otherwise than the base; set it for all"
    )


def _refuse_metric(metric: str, loaded: LoadedConfig) -> None:
    """Found out before hours are spent on runs that will not have it."""
    chosen = loaded.config.evaluate
    there = [f"eval/pass@{k}" for k in dict.fromkeys((1, *chosen.k))]
    there += ["eval/reward_mean", "eval/length_mean", "eval/truncated_fraction"]
    there += ["eval/greedy_pass@1"] if chosen.greedy else []
    if metric not in there:
        raise ConfigError(f"--metric {metric} is not measured by these runs; there are {', '.join(there)}")


def _placed(loaded: LoadedConfig, folder: Path, seed: int) -> LoadedConfig:
    settings = loaded.config.run.model_copy(
        update={"dir": str(folder.absolute()), "seed": seed, "overwrite": True}
    )
    config = loaded.config.model_copy(update={"run": settings})
    return LoadedConfig(config=config, origins=loaded.origins, base=loaded.base)


def _variants(vary: Sequence[str]) -> list[str]:
    """`key=a,b` as `key=a`, `key=b`; commas inside brackets and quotes stay."""
    words: list[str] = []
    for given in vary:
        key, equals, text = given.partition("=")
        values = list(_values(text))
        if not equals or not key.strip() or not all(values):
            raise ConfigError(
                f"--vary {given!r:.80}: give it as key=value,value, such as objective=grpo,dapo"
            )
        words += [f"{key.strip()}={value}" for value in values]
    return words


def _values(text: str) -> Iterator[str]:
    """The values between the commas that stand outside all brackets and quotes."""
    value, depth, quote = "", 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
            if letter == "," and depth <= 0:
                yield value.strip()
                value = ""
                continue
        value += letter
    yield value.strip()


def _file_name(variant: str) -> str:
    """A folder's name for a variant; with a few digits of its hash where it had to be changed."""
    name = re.sub(r"[^\w.=+-]+", "_", variant)[:80]
    return name if name == variant else f"{name}-{hashlib.sha256(variant.encode()).hexdigest()[:6]}"
