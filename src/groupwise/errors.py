"""Errors, named for the border that failed.

Each message is one sentence or two that say what, where and what to do. The command turns a `GroupwiseError`
into that message and exit code 2 (the user can mend it), without a traceback unless `--debug` is given.
"""

from groupwise.secrets import without_secrets

IN_WORKER = "in a worker process, "
"""How a note begins that says where an interruption was raised that another process has sent."""


class GroupwiseError(Exception):
    """Anything that the person who started the command can mend.

    Attributes:
        told: another process of the same run has said it already.
    """

    told = False


class ConfigError(GroupwiseError):
    """The configuration is wrong: an unknown key, a value outside its range, choices that do not fit together."""


class DataError(GroupwiseError):
    """The data is wrong: a missing file or column, a line that is not JSON, an empty prompt."""


class RewardError(GroupwiseError):
    """A reward could not be found or gave something that is not a list of floats or None."""


class SandboxError(GroupwiseError):
    """A program could not be run in isolation."""


class ModelError(GroupwiseError):
    """A model or tokenizer could not be found, read or used."""


class EngineError(GroupwiseError):
    """What samples rollouts failed or was lost."""


class CheckpointError(GroupwiseError):
    """A checkpoint is missing, damaged or of another run."""


class RunFolderError(GroupwiseError):
    """The run folder cannot be used: it holds another run, or cannot be written."""


class TrainingError(GroupwiseError):
    """Training cannot go on, for example since the loss stays non-finite."""


class RankError(GroupwiseError):
    """One of the processes of a run lost the others."""


def raised(error: BaseException, *, limit: int = 200) -> str:
    """What an exception of others says on one line, as `Type: text`, with at most `limit` characters of text.

    Keys and passwords are struck out, since it is written into records.
    """
    try:
        text = without_secrets(" ".join(str(error).split()))
    except Exception:  # an exception of theirs may fail at this too
        text = ""
    if len(text) > limit:
        text = text[: limit - 3] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
