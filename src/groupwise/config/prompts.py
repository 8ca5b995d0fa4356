"""Where prompts come from and how they are read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from groupwise.config.base import (
    Bool,
    Float,
    NonNegativeFloat,
    NonNegativeInt,
    PathText,
    PositiveFloat,
    PositiveInt,
    Section,
    Text,
)
from groupwise.config.choice import as_named

REASONING_GYM = "reasoning-gym:"
"""What the name of a task of reasoning-gym begins with, where sources are named."""


class SourceConfig(Section):
    """One source of rows. Its kind is seen by its name."""

    source: PathText = Field(
        description="A .jsonl, .json, .csv, .tsv, .parquet, .arrow or .feather file; a folder that `datasets` saved; "
        "a data set of the hub, owner/name; module:function or file.py:function; or reasoning-gym:TASK.",
    )
    name: Text | None = Field(
        default=None,
        description="What ids and messages call it; null for `source`. No two may have one name.",
    )
    subset: Text | None = Field(default=None, description="Which configuration of a data set of the hub.")
    split: Text | None = Field(
        default=None, description="Which split of a folder or a data set of the hub that has several."
    )
    settings: dict[str, Any] = Field(
        default={}, description="Keyword arguments of a function, or settings of a reasoning-gym task."
    )
    size: PositiveInt | None = Field(
        default=None, description="Rows that a reasoning-gym task makes (500 by default)."
    )
    seed: NonNegativeInt | None = Field(
        default=None, description="What a reasoning-gym task is made from (0 by default)."
    )
    columns: dict[str, Text] = Field(
        default={},
        description="Names that the run uses to those of this source, as in {prompt: question}: columns are renamed.",
    )
    add: dict[str, Any] = Field(
        default={},
        description="Columns with one value for all rows, such as {task: null} where other sources have a column task.",
    )
    rows: PositiveInt | None = Field(default=None, description="Only the first this many; null: all.")
    weight: PositiveFloat | None = Field(
        default=None,
        description="Its share of every epoch, relative to the other sources' weights; null with all of them: each "
        "row once an epoch.",
    )

    @property
    def called(self) -> str:
        """Its name in ids and messages."""
        return self.name or self.source

    @model_validator(mode="after")
    def _fits_together(self) -> SourceConfig:
        task = self.source.startswith(REASONING_GYM)
        for key in ("size", "seed"):
            if getattr(self, key) is not None and not task:
                raise ValueError(
                    f"{key} is set, but {self.source} is no task of reasoning-gym, which alone makes rows by "
                    "number; remove it, or cut with rows"
                )
        if self.settings and ":" not in self.source:
            raise ValueError(
                f"settings are given, but {self.source} is neither a function nor a task of reasoning-gym; remove them"
            )
        if self.subset is not None and (":" in self.source or self.source.endswith(FILE_ENDINGS)):
            raise ValueError(
                f"subset is set, but {self.source} is no data set of the hub, which alone has them; remove it"
            )
        if self.split is not None and (":" in self.source or self.source.endswith(FILE_ENDINGS)):
            raise ValueError(
                f"split is set, but {self.source} is no folder of `datasets` or data set of the hub; remove it"
            )
        taken = [name for name in set(self.columns.values()) if list(self.columns.values()).count(name) > 1]
        if taken:
            raise ValueError(f"columns names the column {taken[0]!r} twice; one column has one name")
        return self


FILE_ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".feather")
"""The files that rows are read from, by the end of their name."""


def as_sources(value: Any) -> Any:
    """A name, an entry or a list of either as a list of entries; null as none."""
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return [as_named(item, "source") for item in value]
    return [as_named(value, "source")]


Sources = Annotated[tuple[SourceConfig, ...], BeforeValidator(as_sources)]


class CurriculumConfig(Section):
    """Which prompts are ready: those whose estimated success is within bounds, the lower of which falls.

    A prompt's estimate moves with each group of its rollouts: keep x old + (1 - keep) x share that passes.
    """

    difficulty: tuple[NonNegativeFloat, NonNegativeFloat] = Field(
        default=(0.6, 1.0),
        description="The threshold at the first step and where it ends: a prompt whose difficulty (1 less its "
        "estimated success) is above it waits.",
    )
    steps: PositiveInt = Field(default=100, description="Steps over which the threshold rises along a line.")
    mastered: Annotated[Float, Field(gt=0, le=1)] | None = Field(
        default=0.95,
        description="A prompt whose estimated success is at least this is passed over; null: never.",
    )
    again_after: PositiveInt = Field(
        default=50, description="Steps after which a prompt that is passed over or waits is tried once more."
    )
    keep: Annotated[NonNegativeFloat, Field(lt=1)] = Field(
        default=0.5, description="Weight of the old estimate when a group of the prompt is scored."
    )
    first: Annotated[NonNegativeFloat, Field(le=1)] = Field(
        default=0.5, description="Estimate of a prompt that was never sampled and has no `column`."
    )
    column: Text | None = Field(
        default=None,
        description="A column with the share of answers that passed elsewhere, from 0 to 1, as the first estimate.",
    )

    @model_validator(mode="after")
    def _rises(self) -> CurriculumConfig:
        low, high = self.difficulty
        if not low <= high <= 1:
            raise ValueError(
                f"difficulty goes from {low:g} to {high:g}; it rises (or stays) and ends at 1 or below"
            )
        return self


class ColumnsConfig(Section):
    """Which column of the data holds what. Every other column is handed to the rewards by its own name."""

    prompt: Text = Field(
        default="prompt", description="Text, or a list of chat messages with role and content."
    )
    system: Text | None = Field(default=None, description="A column with a system prompt for each row.")
    history: Text | None = Field(
        default=None,
        description="A column with the turns before a text prompt: messages, or pairs of what user and assistant said.",
    )
    max_new_tokens: Text | None = Field(
        default=None,
        description="A column with a limit on new tokens for each row, at most rollout.max_new_tokens; null: that.",
    )


class PromptsConfig(Section):
    """The data and how a row becomes token ids."""

    train: Sources = Field(
        default=(),
        description="What to train on: a source by name, an entry, or a list; files relative to this configuration.",
    )
    held_out: Sources = Field(
        default=(), description="What to evaluate on, in the same form; disjoint from train."
    )
    columns: ColumnsConfig = Field(default=ColumnsConfig(), description="Column names.")
    chat: Bool = Field(
        default=False,
        description="Wrap text prompts as a user turn in the model's chat template; messages always are.",
    )
    system_prompt: Text | None = Field(
        default=None, description="System turn put before every chat prompt without one."
    )
    chat_template_kwargs: dict[str, Any] = Field(
        default={}, description="Passed to the chat template as they are."
    )
    max_prompt_tokens: PositiveInt | None = Field(
        default=None, description="Limit per prompt; null for what the model's context leaves."
    )
    too_long: Literal["error", "drop", "truncate"] = Field(
        default="error",
        description="A prompt over the limit: refuse to start, leave the row out, or cut the middle of its content "
        "and keep the template's frame. Counted and reported.",
    )
    shuffle: Bool = Field(default=True, description="A new order each epoch, from the run's seed.")
    drop_last: Bool = Field(default=False, description="Leave out the last, smaller batch of an epoch.")
    duplicates: Literal["keep", "drop"] = Field(
        default="keep",
        description="Training rows that repeat an earlier one in every column: each stays a prompt, or goes.",
    )
    overlap: Literal["tell", "drop", "error"] = Field(
        default="tell",
        description="Training rows whose prompt is a held-out row's, but for case, spaces and punctuation: told, left "
        "out of training, or refused.",
    )
    curriculum: CurriculumConfig | None = Field(
        default=None, description="Which prompts are ready for training; null: all of them, all the time."
    )

    @field_validator("train", "held_out")
    @classmethod
    def _names_and_weights(cls, value: tuple[SourceConfig, ...]) -> tuple[SourceConfig, ...]:
        names = [source.called for source in value]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two sources are called {twice!r}; give one of them another name")
        without = [source.called for source in value if source.weight is None]
        if without and len(without) < len(value):
            raise ValueError(
                f"the source {without[0]!r} has no weight, but others have; give each one, or none"
            )
        return value

    @field_validator("held_out")
    @classmethod
    def _unweighted(cls, value: tuple[SourceConfig, ...]) -> tuple[SourceConfig, ...]:
        if any(source.weight is not None for source in value):
            raise ValueError("a weight has no effect here, since every held-out row is used once; remove it")
        return value
