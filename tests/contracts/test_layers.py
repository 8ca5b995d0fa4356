from pathlib import Path

import groupwise
from tests.contracts.layers import MAY_IMPORT, layer_faults

SOURCE = Path(groupwise.__file__).parent


def test_every_room_imports_only_what_it_may() -> None:
    assert layer_faults(SOURCE) == []


def test_the_table_is_free_of_circles_but_for_the_command() -> None:
    rooms = {
        room: set(allowed) for room, allowed in MAY_IMPORT.items() if room not in ("__init__", "__main__")
    }
    while rooms:
        free = [room for room, allowed in rooms.items() if not allowed & (set(rooms) - {room})]
        assert free, f"these import each other: {sorted(rooms)}"
        for room in free:
            del rooms[room]
