from pathlib import Path

import groupwise
from tests.contracts.names import stale, unused

SOURCE = Path(groupwise.__file__).parent


def test_every_public_name_is_used() -> None:
    assert unused(SOURCE) == []


def test_no_exception_outlives_its_reason() -> None:
    assert stale(SOURCE) == []


def test_a_name_that_nobody_uses_is_found(tmp_path: Path) -> None:
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "x.py").write_text("def command():\n    pass\n")
    (tmp_path / "a.py").write_text(
        "LIMIT = 3\n\n\nclass A:\n    def used(self):\n        return LIMIT\n\n"
        "    def idle(self):\n        pass\n"
    )
    (tmp_path / "b.py").write_text(
        "from a import A\n\n__all__ = ['alone']\nA().used()\n\n\ndef alone():\n    'It is alone.'\n\n\n"
        "def _own():\n    pass\n\n\ndef named():\n    pass\n\n\nWHERE = 'b:named'\nprint(WHERE)\n"
    )
    assert unused(tmp_path) == ["b.py:alone", "a.py:idle"]
