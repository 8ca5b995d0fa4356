"""The command `groupwise`: its verbs, and what becomes of whatever they raise.

Exit codes: 0 done; 1 a bug, or a check that ended in no; 2 a mistake that its user can mend; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from groupwise.cli.check import check
from groupwise.cli.check_reward import check_reward
from groupwise.cli.compare import compare
from groupwise.cli.eval import evaluate
from groupwise.cli.explain import explain
from groupwise.cli.export import export
from groupwise.cli.health import health
from groupwise.cli.init import init
from groupwise.cli.plan import plan
from groupwise.cli.rate import rate
from groupwise.cli.replay import replay
from groupwise.cli.report import report
from groupwise.cli.sample import sample
from groupwise.cli.score import score
from groupwise.cli.smoke import smoke
from groupwise.cli.stopped import Stopped
from groupwise.cli.train import train
from groupwise.errors import IN_WORKER, GroupwiseError, raised
from groupwise.registry import nearest
from groupwise.secrets import without_secrets

# What the parser of the command line raises. typer brings it from click up to some version and from a private copy of
# click afterwards; the one public name in both is that of a subclass.
_UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
_CLOSED = 141  # as a shell reports a program that a closed pipe ended

app = typer.Typer(
    name="groupwise",
    add_completion=False,
    rich_markup_mode=None,  # importing rich would double the time of --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for _name, _verb in (
    ("train", train),
    ("smoke", smoke),
    ("eval", evaluate),
    ("compare", compare),
    ("export", export),
    ("score", score),
    ("sample", sample),
    ("explain", explain),
    ("replay", replay),
    ("check", check),
    ("plan", plan),
    ("check-reward", check_reward),
    ("health", health),
    ("report", report),
    ("init", init),
):
    app.command(_name)(_verb)
app.add_typer(rate, name="rate")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"groupwise {version('groupwise')}")
        raise typer.Exit


@app.callback()
def _groupwise(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; so does GROUPWISE_DEBUG=1.")
    ] = False,
) -> None:
    """Train language models with group-relative policy optimisation (GRPO) and its relatives.

    Start with `groupwise init DIR`, or with `groupwise smoke` to see that training works on this machine.
    """


def turns_before_sleep(wanted: int | None, cores: int) -> str:
    """How often a thread looks for work before it sleeps (libgomp's GOMP_SPINCOUNT).

    30,000 turns, some tenths of a millisecond, spare most of the time that waking takes. Where other programs want the
    cores they take it from them, and from the threads that are waited for; 1,000 do not (docs/log.md). torch's own
    default is 300,000.

    Args:
        wanted: cores that other programs want at the moment; None where that is not known.
        cores: there are.
    """
    return "30000" if wanted is not None and wanted <= cores // 4 else "1000"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _wanted_cores() -> int | None:
    """By other programs: the least of three looks, since something short runs now and then on every machine."""
    try:
        quota, _, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").partition(" ")
        if int(quota) < int(period) * _cores():
            return None  # torch starts a thread for each core, more than this container may run at once
    except (OSError, ValueError):  # no such limits, or "max"
        pass
    seen = []
    try:
        for _ in range(3):
            running = Path("/proc/loadavg").read_text(encoding="ascii").split()[3]
            seen.append(int(running.partition("/")[0]) - 1)  # less this process
            time.sleep(0.004)
    except (OSError, ValueError, IndexError):
        return None
    return min(seen)


def run(argv: Sequence[str] | None = None) -> int:
    """The console script: run a verb and give the exit code.

    Args:
        argv: the words behind the command's name; those of this process by default.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words or os.environ.get("GROUPWISE_DEBUG", "0") not in ("", "0")
    # --debug is welcome anywhere, since it is added after an error; alone, the command prints its help.
    words = [word for word in words if word != "--debug"] or ["--help"]
    # Before torch is imported, whose threads wait for each other in the many short operations of sampling.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if "GOMP_SPINCOUNT" not in os.environ:
        os.environ["GOMP_SPINCOUNT"] = turns_before_sleep(_wanted_cores(), _cores())
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        code = _verb_of(words)
        sys.stdout.flush()
    except BaseException as error:
        if debug and not isinstance(error, BrokenPipeError):
            print(without_secrets("".join(traceback.format_exception(error))), file=sys.stderr, end="")
        code = _told(error)
    if "groupwise.training.distributed" in sys.modules:
        from groupwise.training.distributed import leave

        leave(code)
    return code


def _verb_of(words: Sequence[str]) -> int:
    """Run the verb. Typer turns a closed pipe into an exit, and an interrupt into the number 130."""
    try:
        code = app(args=list(words), prog_name="groupwise", standalone_mode=False)
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):
            raise error.__context__ from None
        raise
    if code == 130:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _told(error: BaseException) -> int:
    """Say in one line what happened, and give the exit code."""
    match error:
        case GroupwiseError():
            return 2 if error.told else _say(f"error: {error}", 2)
        case Stopped():
            return 130 if error.told else _say(f"stopped: {error}", 130)
        case KeyboardInterrupt() | typer.Abort():
            return _say("stopped before anything was written", 130)
        case BrokenPipeError():
            # What is left in the buffer has nowhere to go; without this the interpreter would complain at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _CLOSED
        case SystemExit():
            return _say(
                f"error: sys.exit({error.code!r:.200}) would end the run ({_blame(error)}); remove it",
                2,
            )
        case _ if isinstance(error, _UsageError):
            return _say(f"error: {_usage(error)}", 2)
        case _ if _out_of_memory(error):
            return _say(
                "error: out of memory; lower training.micro_batch_tokens or rollout.cache_megabytes, or train an "
                "adapter with lora.rank=16",
                2,
            )
        case _:
            return _say(f"error: {raised(error)} ({_blame(error)}; --debug shows the traceback)", 1)


def _say(sentence: str, code: int) -> int:
    print(without_secrets(" ".join(sentence.split("\n"))), file=sys.stderr)
    return code


def _usage(error: Any) -> str:
    """The complaint of the command line's parser, with what was probably meant."""
    said: str = error.format_message().rstrip(".")
    wrong = getattr(error, "option_name", None)
    verb = error.ctx.command if error.ctx is not None else None
    path = error.ctx.command_path if error.ctx is not None else "groupwise"
    if wrong is not None and verb is not None:
        options = [
            option for parameter in verb.params for option in parameter.opts if option.startswith("--")
        ]
        near = nearest(wrong, options)
        takes_settings = any(parameter.nargs == -1 for parameter in verb.params)
        return f"{path} has no option {wrong}{_instead(wrong, near, options, takes_settings)}"
    if "did you mean" in said.lower():
        return said.replace(". Did", "; did") + "?" * (not said.endswith("?"))
    return f"{said}; `{path} --help` tells more"


def _instead(wrong: str, near: str | None, options: Sequence[str], takes_settings: bool) -> str:
    if near is not None:
        return f"; did you mean {near}?"
    if not takes_settings:
        return f"; there are {', '.join(options)}"
    from groupwise.config.foreign import setting_for

    setting = setting_for(wrong.lstrip("-").replace("-", "_"))
    if setting is not None:
        return f"; settings are given as key=value: {setting}=..."
    return "; settings are given as key=value, for example training.steps=10"


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and (type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error))
    )


def _blame(error: BaseException) -> str:
    """Whose code raised: the innermost frame that is neither Python's nor a library's decides.

    A reward in a worker process has left its frames there, and says in a note where it was.
    """
    for note in getattr(error, "__notes__", ()):
        if note.startswith(IN_WORKER):
            return str(note)
    ours = Path(__file__).parents[1]
    libraries = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platlib", "purelib")}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_relative_to(ours):
            return f"a bug in groupwise, {file.relative_to(ours.parent)} line {frame.lineno}"
        if _is_file(file) and not any(file.is_relative_to(folder) for folder in libraries):
            return f"in your own code, {file} line {frame.lineno}"
    return "a bug in groupwise"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # in a folder that may not be read, or no path at all
        return False
