"""Asking a service over HTTP: JSON in, JSON out, with time limits, retries, bounded concurrency and a memory.

Secrets stay out of everything that is written: a key is named by the environment variable that holds it, read when a
request is made, and struck out of whatever a service says back before that is shown.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from groupwise.errors import raised
from groupwise.rewards.answers import Answers

if TYPE_CHECKING:
    import httpx
    from tenacity import RetryCallState

LARGEST_REPLY_BYTES = 16 * 2**20
"""A reply that is larger is refused while it is read."""
FIRST_PAUSE_SECONDS = 1.0
"""Before the second attempt; each further one is twice as long, and all are shortened at random by up to a half."""
LONGEST_PAUSE_SECONDS = 60.0
"""Between two attempts, whatever the service asks for."""
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class ServiceError(Exception):
    """A service could not be asked, or did not answer as it should.

    Attributes:
        again: another attempt may do better.
        pause_seconds: how long the service asks to wait first; None where it does not say.
    """

    def __init__(self, message: str, *, again: bool = False, pause_seconds: float | None = None) -> None:
        super().__init__(message)
        self.again = again
        self.pause_seconds = pause_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where to ask, and how patiently."""

    url: str
    """http or https, without a key in it."""
    key_variable: str | None
    """Environment variable that holds the key; None for a service without one."""
    key_header: str
    """The header that carries the key; under `Authorization` it is preceded by `Bearer`."""
    timeout_seconds: float
    """Longest that one attempt may take, from connecting to the last byte."""
    attempts: int
    """How often to try in all."""
    concurrency: int
    """Requests at a time."""

    def check(self) -> None:
        """Refuse what cannot work, without asking anything.

        Raises:
            ValueError: the address or the key is missing or of the wrong form; a key is never shown.
        """
        if not self.url:
            raise ValueError(
                "url is missing; give the address of the service, such as http://localhost:8000/v1"
            )
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            known = False
        if not known or re.search(r"\s", self.url):
            raise ValueError(f"url {self.url!r:.100} is not an address such as http://localhost:8000/v1")
        if "@" in parts.netloc:
            raise ValueError(
                "url holds a user name or password, which would be written into the run's records; put the key into an "
                "environment variable and name that in key_variable"
            )
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", self.key_header):
            raise ValueError(f"key_header {self.key_header!r:.60} is not the name of a header")
        self._key()

    async def ask_all(
        self,
        bodies: Sequence[Mapping[str, Any]],
        read: Callable[[Any], Any],
        *,
        answers: Answers | None = None,
    ) -> list[Any]:
        """Send every body, equal ones once, and read the replies.

        Args:
            bodies: what to send, each as one JSON document.
            read: makes the result of a reply's JSON, or raises ServiceError or ValueError with the reason it cannot.
            answers: replies that were read before are taken from here, and new ones put in.

        Returns:
            Per body what `read` made of the reply, or a ServiceError.
        """
        import httpx

        if not bodies:
            return []
        key = self._key()
        headers = {"content-type": "application/json", "accept": "application/json"}
        if key is not None:
            headers[self.key_header] = f"Bearer {key}" if self.key_header.lower() == "authorization" else key
        limits = httpx.Limits(max_connections=self.concurrency)
        texts = [json.dumps(body, ensure_ascii=False, allow_nan=False) for body in bodies]
        free = asyncio.Semaphore(self.concurrency)
        context = ssl.create_default_context()
        async with httpx.AsyncClient(headers=headers, limits=limits, timeout=None, verify=context) as client:

            async def one(text: str) -> Any:
                known = None if answers is None else answers.get(self.url, text)
                if known is not None:
                    return _read(read, known)
                async with free:
                    try:
                        reply = await self._patiently(client, text)
                    except ServiceError as error:
                        return _without(key, error)
                result = _read(read, reply)
                if isinstance(result, ServiceError):
                    return _without(key, result)
                if answers is not None:
                    answers.put(self.url, text, reply)
                return result

            different = list(dict.fromkeys(texts))
            results = await asyncio.gather(*(one(text) for text in different))
        by_text = dict(zip(different, results, strict=True))
        return [by_text[text] for text in texts]

    async def _patiently(self, client: httpx.AsyncClient, text: str) -> Any:
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.attempts),
            wait=self._pause,
            retry=retry_if_exception(lambda error: isinstance(error, ServiceError) and error.again),
            reraise=True,
        )
        try:
            return await retrying(self._once, client, text)
        except ServiceError as error:
            if error.again and self.attempts > 1:
                raise ServiceError(f"{error} (tried {self.attempts} times)") from error
            raise

    def _pause(self, state: RetryCallState) -> float:
        import random

        error = state.outcome.exception() if state.outcome is not None else None
        asked = error.pause_seconds if isinstance(error, ServiceError) else None
        # Random's own generator, seeded by the system: the run's generators must not depend on a service's mood.
        spread = random.SystemRandom().uniform(0.5, 1.0)
        own = FIRST_PAUSE_SECONDS * 2.0 ** (state.attempt_number - 1) * spread
        return min(LONGEST_PAUSE_SECONDS, max(own, asked or 0.0))

    async def _once(self, client: httpx.AsyncClient, text: str) -> Any:
        """One attempt; the reply's JSON."""
        import httpx

        where = self._shown()
        try:
            async with asyncio.timeout(self.timeout_seconds):
                async with client.stream("POST", self.url, content=text.encode()) as response:
                    content = bytearray()
                    async for chunk in response.aiter_bytes():
                        content += chunk
                        if len(content) > LARGEST_REPLY_BYTES:
                            raise ServiceError(f"{where} sent more than {LARGEST_REPLY_BYTES // 2**20} MB")
        except TimeoutError:
            raise ServiceError(
                f"{where} did not answer within {self.timeout_seconds:g} seconds", again=True
            ) from None
        except httpx.HTTPError as error:
            raise ServiceError(f"{where} could not be asked: {raised(error)}", again=True) from error
        return self._json(response, bytes(content))

    def _json(self, response: httpx.Response, content: bytes) -> Any:
        where, status = self._shown(), response.status_code
        said = " ".join(content[:2000].decode("utf-8", "replace").split())
        key = self._key()
        said = said if key is None else said.replace(key, "[key]")  # before it is shortened
        said = f": {said[:200]}" if said else ""
        if 300 <= status < 400:
            raise ServiceError(f"{where} answers {status}, which points elsewhere and is not followed")
        if status in (401, 403):
            variable = (
                f"the variable {self.key_variable}" if self.key_variable else "key_variable, which is not set"
            )
            raise ServiceError(f"{where} answered {status}; look at the key in {variable}{said}")
        if status != 200:
            pause = _seconds(response.headers.get("retry-after"))
            raise ServiceError(
                f"{where} answered {status}{said}", again=status in _AGAIN, pause_seconds=pause
            )
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise ServiceError(f"{where} answered with something that is not JSON{said}") from None

    def _key(self) -> str | None:
        if self.key_variable is None:
            return None
        if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", self.key_variable):
            raise ValueError(
                "key_variable is the name of an environment variable, in capital letters such as JUDGE_KEY; what it is "
                "set to is not shown here, in case it is the key itself"
            )
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            raise ValueError(
                f"the environment variable {self.key_variable}, which key_variable names, is not set"
            )
        if not (key.isascii() and key.isprintable()):
            raise ValueError(
                f"the environment variable {self.key_variable} holds characters that no header can"
            )
        return key

    def _shown(self) -> str:
        """The address without what may be secret in it."""
        return self.url.split("?")[0].split("#")[0]


def at_path(reply: Any, path: str, remedy: str = "") -> Any:
    """What stands at a dotted path of a JSON document; numbers count the items of a list, an empty path is all of it.

    Raises:
        ServiceError: there is nothing; says what there is.
    """
    found = reply
    for part in path.split(".") if path else []:
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            has = f"the keys {', '.join(map(str, found)) or 'none'}" if isinstance(found, Mapping) else ""
            has = has or (f"a list of {len(found)}" if isinstance(found, list) else f"{found!r:.60}")
            raise ServiceError(f"its reply has no {path!r}: at {part!r} there is {has:.200}{remedy}")
    return found


def _read(read: Callable[[Any], Any], reply: Any) -> Any:
    try:
        return read(reply)
    except ServiceError as error:
        return error
    except ValueError as error:
        return ServiceError(str(error))


def _without(key: str | None, error: ServiceError) -> ServiceError:
    """The same error, with the key struck out of whatever the service said."""
    if key is None or key not in str(error):
        return error
    return ServiceError(str(error).replace(key, "[key]"))


def _seconds(text: str | None) -> float | None:
    """`Retry-After` as seconds; a date is left to our own pauses."""
    return float(text) if text is not None and re.fullmatch(r"\d{1,6}(\.\d+)?", text.strip()) else None
