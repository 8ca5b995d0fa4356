"""Calls a program's function with inputs of rising size, and tells the host when each call begins and ends.

The host reads the processor time of the program's process at those moments. Neither the program nor this side could
say anything else of it.
"""

from __future__ import annotations

import os
import random

from . import equality, objects, tests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def run(links: list[int], job: dict[str, Any], tell: Callable[[Any], None]) -> None:
    """Measure one program.

    Args:
        links: the socket to the program, and one on which the host answers each mark with a byte.
        job: `program`, `workload`, `entry_point`, `sizes` and `tolerance`.
        tell: sends a message to the host: `("mark", what, size)`, then `("done", detail)`.
    """
    link, host = links
    peer = objects.Tests(link, own_modules=frozenset({tests.OWN}))

    def mark(what: str, size: int) -> None:
        tell(("mark", what, size))
        os.read(host, 1)

    try:
        tell(("done", _measure(peer, job, mark)))
    except BaseException as error:
        tell(("done", tests.said(error)))


def _measure(peer: objects.Tests, job: dict[str, Any], mark: Callable[[str, int], None]) -> str:
    """What is wrong with the program, or nothing."""
    names: dict[str, Any] = {"__name__": tests.OWN}
    exec(compile(job["workload"], "workload", "exec", dont_inherit=True), names)
    sizes = job["sizes"]
    peer.ask("echo", ())  # from here on its process is there, which the first mark asks for
    # Before the program is there: what it costs to hand the input over and to get as much back.
    for size in sizes:
        given = _arguments(names, size)
        mark("begin", size)
        peer.ask("echo", given)
        mark("echoed", size)
    for size in sizes:
        # Anew for each size: what the program keeps of one call in its module must not answer the next.
        peer.ask("load", job["program"])
        function = tests.function_of(peer, job["entry_point"])
        given = _arguments(names, size)
        mark("begin", size)
        peer.ask("keep", given)
        mark("call", size)
        peer.ask("run", function)
        mark("called", size)
        result = peer.ask("fetch")
        mark("fetched", size)
        if "reference" in names:
            right = names["reference"](*_arguments(names, size))
            if not equality.same(result, right, job["tolerance"]):
                return f"at size {size} it gave {tests.short(result)}, not {tests.short(right)}"
    return ""


def _arguments(names: dict[str, Any], size: int) -> tuple[Any, ...]:
    """The same each time, also where they are drawn at random."""
    random.seed(size)
    given = names["arguments"](size)
    return tuple(given) if isinstance(given, tuple | list) else (given,)
