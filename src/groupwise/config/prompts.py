"""Where prompts come from and how they are read."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from groupwise.config.base import Bool, PathText, PositiveInt, Section, Text


class ColumnsConfig(Section):
    """Which column of the data holds what. Every other column is handed to the rewards by its own name."""

    prompt: Text = Field(
        default="prompt", description="Text, or a list of chat messages with role and content."
    )
    system: Text | None = Field(default=None, description="A column with a system prompt for each row.")


class PromptsConfig(Section):
    """The data and how a row becomes token ids."""

    train: PathText | None = Field(
        default=None, description="JSONL file to train on, relative to this configuration."
    )
    held_out: PathText | None = Field(
        default=None, description="JSONL file for evaluation, disjoint from train."
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
