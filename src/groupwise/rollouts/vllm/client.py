"""Talking to a vLLM server: which failures may pass, and which are for people to mend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from groupwise.config.serving import VllmConfig
from groupwise.errors import EngineError

_MAY_PASS = frozenset({404, 408, 409, 425, 429, 500, 502, 503, 504})
"""Answers of a server that starts, is overloaded, has just ended, or does not know the adapter that it should have."""
_CONNECT_SECONDS = 10.0
_LONGEST_SHOWN = 300


class LostError(Exception):
    """The server did not answer, or has not the weights that it should have; it may be well again later."""


class Client:
    """Requests to one server, from any number of threads."""

    def __init__(self, base_url: str, config: VllmConfig) -> None:
        """Nothing is asked yet.

        Args:
            base_url: such as http://localhost:8000.
            config: time limits and how many requests there are at a time.
        """
        self.base_url = base_url
        timeout = httpx.Timeout(config.timeout_seconds, connect=_CONNECT_SECONDS)
        # Some more than are asked for at a time, so that no request waits for a connection.
        limits = httpx.Limits(max_connections=config.concurrency + 4)
        # The environment's proxies are for the world outside, and rollouts do not leave it.
        self._http = httpx.Client(base_url=base_url, timeout=timeout, limits=limits, trust_env=False)

    def get(self, path: str) -> Any:
        """The JSON that a GET gives; see `post`."""
        return self._answer("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON that a POST gives; None where there is none.

        Raises:
            LostError: another attempt may do better.
            EngineError: the server refuses the request, with its own words.
        """
        return self._answer("POST", path, body)

    def close(self) -> None:
        """End the connections."""
        self._http.close()

    def _answer(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        try:
            response = self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise LostError(f"{path}: {type(error).__name__}: {error}") from error
        if response.status_code == 404 and _words(response) == "Not Found":  # not a model, but the path
            raise EngineError(
                f"the server at {self.base_url} has no {path}: it is no vLLM, or one that was not started for "
                "training; docs/serving.md has the command"
            )
        if response.status_code in _MAY_PASS:
            raise LostError(f"{path}: status {response.status_code}: {_words(response)}")
        if response.is_error:
            raise EngineError(
                f"the vLLM server at {self.base_url} refuses {path}: {_words(response)} (status "
                f"{response.status_code})"
            )
        try:
            return response.json()
        except ValueError:
            return None


def _words(response: httpx.Response) -> str:
    """What a refusal says of itself, on one line."""
    try:
        given = response.json()
    except ValueError:
        given = response.text
    if isinstance(given, Mapping):
        given = given.get("error") or given.get("detail") or given.get("message") or given
    if isinstance(given, Mapping):
        given = given.get("message", given)
    text = " ".join(str(given).split())
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
