"""A side for the tests: answers with how often it was asked, prints, and ends or dies when told."""

from __future__ import annotations

import sys

from benchmarks.turns import Seat


def main() -> None:
    seat = Seat()
    asked = 0
    while (request := seat.wait()) is not None:
        print("a library prints what it likes", flush=True)
        if request["do"] == "die":
            sys.exit("out of memory, say")
        asked += 1
        seat.answer(name=sys.argv[1], asked=asked, did=request["do"], given=request.get("given"))


if __name__ == "__main__":
    main()
