from pathlib import Path

import groupwise
from tests.contracts.layers import MAY_IMPORT, circles, layer_faults

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


def test_no_two_modules_import_each_other() -> None:
    assert circles(SOURCE) == []


def test_modules_that_import_each_other_are_found(tmp_path: Path) -> None:
    package = tmp_path / "p"
    (package / "b").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from p.b.c import x\n")
    (package / "b" / "__init__.py").write_text("")
    (package / "b" / "c.py").write_text("from . import d\n\nx = 1\n")
    (package / "b" / "d.py").write_text("def f():\n    from p import a\n    return a\n")
    (package / "e.py").write_text("import p.a\n")
    assert circles(package) == [{"p.a", "p.b.c", "p.b.d"}]
