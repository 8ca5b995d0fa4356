"""A memory of what services have answered, so that the same question is asked once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError

MOST_IN_MEMORY = 20_000
"""Replies kept in memory; the one that was longest unused goes first."""


class Answers:
    """Replies by their question, in memory and, where a file is given, on disk.

    A question is the address and the whole body of the request: the model, the rubric and every setting are in it, so
    changing any of them asks anew. Questions are stored as hashes; keys are no part of them. The file is SQLite, and
    several processes may share it.

    Args:
        file: where to keep replies between runs; None for memory alone.

    Raises:
        ConfigError: the file cannot be opened, or is something else.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._memory: OrderedDict[str, str] = OrderedDict()
        self._file = file
        self._lock = threading.Lock()
        if file is not None:
            with self._database() as database:
                database.execute(
                    "CREATE TABLE IF NOT EXISTS answers (question TEXT PRIMARY KEY, reply TEXT NOT NULL)"
                )

    def get(self, url: str, body: str) -> Any | None:
        """The JSON of the reply, or None where it is not known."""
        question = _question(url, body)
        with self._lock:
            if question in self._memory:
                self._memory.move_to_end(question)
                return json.loads(self._memory[question])
        if self._file is None:
            return None
        with self._database() as database:
            row = database.execute("SELECT reply FROM answers WHERE question = ?", (question,)).fetchone()
        if row is None:
            return None
        self._remember(question, row[0])
        return json.loads(row[0])

    def put(self, url: str, body: str, reply: Any) -> None:
        """Keep a reply."""
        question, text = _question(url, body), json.dumps(reply)
        self._remember(question, text)
        if self._file is not None:
            with self._database() as database:
                database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (question, text))

    def _remember(self, question: str, text: str) -> None:
        with self._lock:
            self._memory[question] = text
            self._memory.move_to_end(question)
            while len(self._memory) > MOST_IN_MEMORY:
                self._memory.popitem(last=False)

    @contextlib.contextmanager
    def _database(self) -> Any:
        # Opened for each use, so that no connection is shared between threads or carried over a fork.
        try:
            with contextlib.closing(sqlite3.connect(str(self._file), timeout=30)) as database, database:
                yield database
        except sqlite3.Error as error:
            raise ConfigError(
                f"cache {self._file} cannot be used: {error}; name a file that is not there yet, in a folder that is"
            ) from None


def _question(url: str, body: str) -> str:
    return hashlib.sha256(f"{url}\n{body}".encode()).hexdigest()
