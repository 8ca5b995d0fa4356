"""The Python that programs run with, and what of the host it needs to be seen."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass

from groupwise.errors import SandboxError

_ASK = (
    "import json, os, sys; print(json.dumps([sys.version_info[:2], os.path.realpath(sys.executable), sys.prefix, "
    "sys.base_prefix, os.path.dirname(os.__file__)]))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """An interpreter and the paths that it reads."""

    command: tuple[str, ...]
    """Its file and options."""
    paths: tuple[str, ...]
    """Folders and files that it needs, beside /usr."""


@functools.cache
def find_interpreter(python: str | None) -> Interpreter:
    """What it takes to run programs with an interpreter.

    By default it is the one that runs this, without site packages and without its virtual environment: a program sees
    the standard library, of the version that its user works with, and starts fast. An interpreter that is named is
    run with its site packages, so that programs can use what is installed there.

    Raises:
        SandboxError: there is none of that name, or it is too old.
    """
    named = sys.executable if python is None else python
    try:
        answer = subprocess.run(
            [named, "-I", "-c", _ASK],
            capture_output=True,
            timeout=60,
            check=True,
            stdin=subprocess.DEVNULL,
            env={},
        )
        version, executable, prefix, base, library = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise SandboxError(
            f"python: {named!r} does not run as a Python interpreter ({error}); name its file"
        ) from None
    if tuple(version) < (3, 10):
        raise SandboxError(
            f"python: {named!r} is Python {version[0]}.{version[1]}; programs are graded with 3.10 or newer"
        )
    paths = [executable, os.path.join(base, "lib"), os.path.join(base, "lib64"), library]
    options = ("-s", "-B", "-X", "utf8", "-W", "ignore")
    if python is None:
        command: tuple[str, ...] = (executable, "-S", *options)
    else:
        paths.append(prefix)
        command = (os.path.abspath(named), *options)
    outside = [path for path in paths if not path.startswith("/usr/") and os.path.exists(path)]
    shortest = [p for p in dict.fromkeys(outside) if not any(p.startswith(q + "/") for q in outside)]
    return Interpreter(command=command, paths=tuple(shortest))
