"""From rows of data to token ids, and in which order they are used. Loads no torch."""

from groupwise.prompts.encode import PromptReport, encode
from groupwise.prompts.load import Row, check_rows, read_rows, rows_from
from groupwise.prompts.order import PromptOrder

__all__ = ["PromptOrder", "PromptReport", "Row", "check_rows", "encode", "read_rows", "rows_from"]
