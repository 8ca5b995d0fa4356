"""Keys and passwords: refused in a configuration, which every run writes down, and struck out of what is said.

Kept from logs, records and tracebacks are the values of environment variables whose names tell of a secret, and texts
in the form of a well-known service's keys. What a person wrote into their data is their data.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

_SETTING = re.compile(
    r"(^|[_-])(api_?key|secret|secret_?key|password|passwd|access_?token|auth_?token|hf_?token|bearer)$", re.I
)
_VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.I)
_IN_ADDRESS = re.compile(
    r"([?&](?:api_?key|key|token|access_?token|auth_?token|password)=)[^&\s\"']+|(://[^/\s:@]*:)[^/\s@]+(?=@)",
    re.I,
)
_WELL_KNOWN = re.compile(
    r"\b(?:sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}|hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{30,}"
    r"|AKIA[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,})"
)
_SHORTEST = 8  # characters; a variable's shorter value would be found inside ordinary words


def secret_in(value: Any, place: str = "", *, depth: int = 40) -> str | None:
    """The dotted place of what looks like a key or a password in some settings; None for nothing.

    Texts under a name such as `api_key` or `password` do, so do such names in the query of an address, a password
    before its host, and texts that have the form of a well-known service's keys. What lies more than `depth` levels
    deep is not looked at, since a mapping may hold itself.
    """
    if depth == 0:
        return None
    if isinstance(value, Mapping):
        for key, inner in value.items():
            here = f"{place}.{key}" if place else str(key)
            if isinstance(inner, str) and inner.strip() and _SETTING.search(str(key)):
                return here
            found = secret_in(inner, here, depth=depth - 1)
            if found is not None:
                return found
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            found = secret_in(inner, f"{place}[{i}]", depth=depth - 1)
            if found is not None:
                return found
    elif isinstance(value, str) and (_IN_ADDRESS.search(value) or _WELL_KNOWN.search(value)):
        return place or "it"
    return None


def without_secrets(text: str, variables: Mapping[str, str] | None = None) -> str:
    """The text with every secret in it replaced by `[NAME]` of the variable that holds it, or by `[key]`.

    Args:
        text: that is to be shown or written.
        variables: by name; those of the environment by default.
    """
    known = os.environ if variables is None else variables
    held = [(value.strip(), name) for name, value in known.items() if _VARIABLE.search(name)]
    for value, name in sorted(held, key=lambda pair: -len(pair[0])):  # one may be part of another
        if len(value) >= _SHORTEST:
            text = text.replace(value, f"[{name}]")
    text = _IN_ADDRESS.sub(lambda found: f"{found[1] or found[2]}[key]", text)
    return _WELL_KNOWN.sub("[key]", text)
