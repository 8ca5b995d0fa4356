"""Runs a program once per input, as a script of its own, and tells what it wrote and how it ended."""

from __future__ import annotations

import os
import select
import sys

from . import plain, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TAIL = 2000
"""Bytes of the standard error that are told."""


def run_all(
    control: int, job: dict[str, Any], confine: Callable[[], None], leftovers: Callable[[], None]
) -> None:
    """Run every case in order and send, for each, how it ended, its exit status, its output and the end of its errors.

    Args:
        control: where the results go.
        job: `program`, `inputs` and `output_bytes`, the most that a case may write.
        confine: done in each case's process before the program.
        leftovers: ends what a case has left running.
    """
    for i, given in enumerate(job["inputs"]):
        ended, status, output, errors = _run(job["program"], given, job["output_bytes"], control, confine)
        leftovers()
        result = (i, ended, status, output, errors[-TAIL:])
        wire.send(control, plain.encode(result, lambda value: None))


def _run(
    program: str, given: bytes, most: int, control: int, confine: Callable[[], None]
) -> tuple[str, int, bytes, bytes]:
    source = _file_with(given)
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            for fd, standard in ((source, 0), (out_end, 1), (err_end, 2)):
                os.dup2(fd, standard)
            os.closerange(3, 256)
            confine()
            status = _as_script(program)
        finally:
            os._exit(status)
    for fd in (source, out_end, err_end):
        os.close(fd)
    try:
        return _watch(child, out, err, most)
    finally:
        os.close(out)
        os.close(err)


def _file_with(content: bytes) -> int:
    path = f".input-{os.getpid()}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.unlink(path)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _watch(child: int, out: int, err: int, most: int) -> tuple[str, int, bytes, bytes]:
    """Read both streams together until the process ends or has written more than it may; both are bounded."""
    read = {out: bytearray(), err: bytearray()}
    waiting = [out, err]
    for fd in read:
        os.set_blocking(fd, False)
    wait = 0.001
    while True:
        ended, how = os.waitpid(child, os.WNOHANG)
        over = [_drain(fd, read[fd], waiting, most) for fd in list(waiting)]  # both, whatever the first says
        if any(over):
            if not ended:
                os.kill(child, 9)
                os.waitpid(child, 0)
            return ("output", 0, b"", bytes(read[err]))
        if ended:
            # What it started may still hold the pipes open, so their end is not waited for.
            return ("exit", os.waitstatus_to_exitcode(how), bytes(read[out]), bytes(read[err]))
        wait = 0.001 if select.select(waiting, [], [], wait)[0] else min(wait * 2, 0.02)


def _drain(fd: int, content: bytearray, waiting: list[int], most: int) -> bool:
    """Take what there is to read; True when it is more than `most` bytes in all."""
    while len(content) <= most:
        try:
            part = os.read(fd, 65536)
        except BlockingIOError:
            return False
        if not part:
            waiting.remove(fd)
            return False
        content += part
    return True


def _as_script(program: str) -> int:
    """Run the program as `python program.py` would, and give the status it ends with."""
    path = "program.py"
    sys.argv = [path]
    main = type(sys)("__main__")
    main.__file__ = path
    sys.modules["__main__"] = main
    status = 0
    try:
        with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(program)
        exec(compile(program.removeprefix("\ufeff"), path, "exec", dont_inherit=True), main.__dict__)
    except SystemExit as stop:
        status = _status(stop.code)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    return _end(main, status)


def _end(main: Any, status: int) -> int:
    """What the interpreter does at its end: wait for threads, run exit handlers, drop what is left, and flush."""
    import atexit
    import gc

    threading = sys.modules.get("threading")
    try:
        if threading is not None:
            threading._shutdown()
        atexit._run_exitfuncs()
        main.__dict__.clear()  # a file that was never closed is written when it goes
        gc.collect()
    except BaseException:
        status = status or 1
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            status = status or 120
    return status


def _status(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1
