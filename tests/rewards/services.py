"""Real servers on ports of their own: an answer for each request, however odd."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Service:
    """What a server has seen, and where it is.

    `answer(body)` gives what to do: a value to send as JSON, bytes to send as they are, a pair (status, value), a
    triple (status, value, headers), or a function of the handler.
    """

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.at_a_time = 0
        self.most_at_a_time = 0
        self.url = ""
        self.lock = threading.Lock()


@contextlib.contextmanager
def serving(answer: Callable[[Any], Any]) -> Iterator[Service]:
    service = Service(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with service.lock:
                service.bodies.append(body)
                service.headers.append({k.lower(): v for k, v in self.headers.items()})
                service.paths.append(self.path)
                service.at_a_time += 1
                service.most_at_a_time = max(service.most_at_a_time, service.at_a_time)
            try:
                self.reply(service.answer(body))
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True
            finally:
                with service.lock:
                    service.at_a_time -= 1

        def reply(self, said: Any) -> None:
            if callable(said):
                said(self)
                return
            status, value, headers = 200, said, {}
            if isinstance(said, tuple):
                status, value, headers = (*said, {})[:3]
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            for name, text in {"content-length": str(len(content)), **headers}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def drop(handler: Any) -> None:
    """End the connection without a word, as a crashed server does."""
    handler.close_connection = True
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def drop_midway(handler: Any) -> None:
    """Promise more than is sent."""
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"scores": [')
    handler.wfile.flush()
    drop(handler)


def drip(handler: Any) -> None:
    """A byte now and then, for ever, so that no single read takes long."""
    handler.send_response(200)
    handler.send_header("content-length", "100000")
    handler.end_headers()
    for _ in range(200):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def slow(seconds: float, value: Any) -> Callable[[Any], None]:
    """Answers late."""

    def late(handler: Any) -> None:
        time.sleep(seconds)
        handler.reply(value)

    return late


def said(text: str | None, **more: Any) -> dict[str, Any]:
    """A chat reply."""
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop", **more}]}
