"""Each contract is shown to fail: a small sound house, one thing broken in it, and the fault that must be found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contracts import sizes
from tests.contracts.documentation import docstring_faults, metric_names, missing_files, unfinished
from tests.contracts.layers import layer_faults
from tests.contracts.registries import registry_faults
from tests.contracts.sizes import size_faults, stale_exceptions

ESTIMATOR = '''"""Half of each reward."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

FORMULA = "A_i = r_i / {divisor:g}"


def halves(rewards_G: Tensor, *, divisor: float = 2.0) -> Tensor:
    """A_i = r_i / divisor.

    Source: made up.

    Edge case: none.

    Args:
        rewards_G: shape [G].
        divisor: what to divide by.
    """
    return rewards_G / divisor
'''
SCORER = '''"""Says yes."""

from __future__ import annotations


def yes(completions: list[str], answer: list[str], *, value: float = 1.0) -> list[float]:
    """The same for all.

    Edge case: an empty list gives an empty list.

    Args:
        completions: any.
        answer: any.
        value: what all get.
    """
    return [value for _ in completions]
'''
HOUSE = {
    "src/groupwise/__init__.py": '"""The house."""\n',
    "src/groupwise/errors.py": '"""Errors."""\n',
    "src/groupwise/records/__init__.py": '"""Nouns."""\n\nfrom groupwise.errors import GroupwiseError\n',
    "src/groupwise/rewards/__init__.py": '"""Rewards."""\n\nfrom groupwise.records import Group\n',
    "src/groupwise/rewards/scorers/__init__.py": '"""Scorers."""\n',
    "src/groupwise/rewards/scorers/yes.py": SCORER,
    "src/groupwise/rollouts/__init__.py": '"""Rollouts."""\n\nimport torch\n',
    "src/groupwise/objective/__init__.py": '"""Mathematics."""\n',
    "src/groupwise/objective/advantages/__init__.py": '"""Estimators."""\n',
    "src/groupwise/objective/advantages/halves.py": ESTIMATOR,
    "src/groupwise/training/__init__.py": '"""Training."""\n',
    "src/groupwise/training/loop.py": '"""The sentence."""\n\nfrom groupwise.rewards import x\n',
    "src/groupwise/cli/__init__.py": '"""Commands."""\n',
    "src/groupwise/cli/main.py": (
        '"""The command."""\n\n\ndef run() -> None:\n    """Run."""\n    from groupwise.training import loop\n'
    ),
    "tests/objective/test_halves.py": "from groupwise.objective.advantages.halves import halves\n",
    "tests/rewards/test_yes.py": "from groupwise.rewards.scorers.yes import yes\n",
}


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for name, text in HOUSE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def source(house: Path) -> Path:
    return house / "src" / "groupwise"


CHECKS: dict[str, Callable[[Path], list[str]]] = {
    "layers": lambda house: layer_faults(source(house)),
    "registries": lambda house: registry_faults(source(house), house / "tests"),
    "sizes": lambda house: size_faults(source(house)),
    "docstrings": lambda house: docstring_faults(source(house)),
    "unfinished": lambda house: unfinished(source(house)),
}


def add(house: Path, name: str, text: str) -> None:
    path = source(house) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((path.read_text() if path.exists() else '"""New."""\n') + text, encoding="utf-8")


def swap(house: Path, name: str, old: str, new: str) -> None:
    path = source(house) / name
    text = path.read_text()
    assert old in text, "the sabotage itself is broken"
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("check", CHECKS)
def test_the_sound_house_has_no_faults(house: Path, check: str) -> None:
    assert CHECKS[check](house) == []


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("records/file.py", "import torch\n", "records/file.py:2: records imports torch at run time"),
        ("records/file.py", "from torch.nn import functional\n", "records imports torch"),
        (
            "records/file.py",
            "def f():\n    import transformers\n",
            "records/file.py:3: records imports transformers",
        ),
        ("objective/x.py", "import transformers.models\n", "objective imports transformers"),
        (
            "records/file.py",
            "from groupwise.config import load\n",
            "records may not import groupwise.config.load",
        ),
        ("records/file.py", "from ..config import load\n", "records may not import groupwise.config.load"),
        ("records/file.py", "from .. import config\n", "records may not import groupwise.config"),
        ("records/file.py", "from groupwise import training\n", "records may not import groupwise.training"),
        ("records/file.py", "import groupwise\n", "records may not import groupwise"),
        (
            "records/file.py",
            "if True:\n    import groupwise.model\n",
            "records may not import groupwise.model",
        ),
        ("rewards/x.py", "from groupwise.rollouts import y\n", "rewards may not import groupwise.rollouts.y"),
        ("rollouts/x.py", "from groupwise.rewards import y\n", "rollouts may not import groupwise.rewards.y"),
        ("training/x.py", "from groupwise.report import y\n", "training may not import groupwise.report.y"),
        (
            "training/x.py",
            "def f():\n    import groupwise.cli.main\n",
            "training may not import groupwise.cli.main",
        ),
        ("evaluate/x.py", "import groupwise.training\n", "evaluate may not import groupwise.training"),
        ("report/x.py", "import groupwise.config\n", "report may not import groupwise.config"),
        ("workbench/x.py", "import groupwise.cli\n", "workbench may not import groupwise.cli"),
        (
            "model/x.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from groupwise.training import y\n",
            "model may not import groupwise.training.y",
        ),
        ("rewards/scorers/x.py", "import torch\n", "a registry module imports torch when it is read"),
        (
            "cli/x.py",
            "import groupwise.training.loop\n",
            "cli imports groupwise.training.loop outside a function",
        ),
        ("cli/x.py", "import torch\n", "cli imports torch outside a function"),
        ("errors.py", "import groupwise.records\n", "errors may not import groupwise.records"),
        ("kitchen/x.py", "", "kitchen is not a room of the house"),
    ],
)
def test_a_broken_layer_is_found(house: Path, file: str, text: str, fault: str) -> None:
    add(house, file, text)
    faults = layer_faults(source(house))
    assert len(faults) == 1
    assert fault in faults[0]
    assert faults[0].startswith(file)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("records/file.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n"),
        ("rewards/scorers/x.py", "def x():\n    import transformers\n"),
        (
            "records/file.py",
            "from groupwise.records import Group\nfrom . import Group\nfrom groupwise import registry\n",
        ),
        ("workbench/x.py", "import torch\nimport groupwise.report\nfrom groupwise import train\n"),
        ("cli/x.py", "def f():\n    import torch\n    from groupwise import train\n"),
        ("__init__.py", "def train():\n    from groupwise.training import loop\n"),
    ],
)
def test_what_is_allowed_is_not_called_a_fault(house: Path, file: str, text: str) -> None:
    add(house, file, text)
    assert layer_faults(source(house)) == []


HALVES = "objective/advantages/halves.py"
YES = "rewards/scorers/yes.py"


@pytest.mark.parametrize(
    ("file", "old", "new", "fault"),
    [
        (HALVES, "def halves", "def thirds", "holds no function called halves"),
        (HALVES, "def halves", "def other() -> None: ...\ndef halves", "a second public function, other"),
        (HALVES, ", *, divisor", ", divisor", "a default is a setting, so it is keyword-only"),
        (HALVES, "divisor: float = 2.0", "divisor: float", "the setting divisor has no default"),
        (HALVES, "divisor: float = 2.0", "divisor=2.0", "the argument divisor has no type"),
        (HALVES, "rewards_G: Tensor,", "rewards_G,", "the argument rewards_G has no type"),
        (HALVES, " -> Tensor:", ":", "what it returns has no type"),
        (HALVES, "rewards_G: Tensor, *, ", "*rewards_G: Tensor, ", "takes *args"),
        (HALVES, "= 2.0)", "= 2.0, **more: float)", "takes **keywords"),
        (HALVES, "Source:", "From:", "says no `Source:`"),
        (HALVES, "Edge case:", "Beware:", "says no `Edge case:`"),
        (HALVES, "        divisor: what", "        by: what", "does not explain the argument divisor"),
        (HALVES, "FORMULA =", "TEXT =", "holds no FORMULA"),
        (HALVES, "{divisor:g}", "{divider:g}", "FORMULA cannot be filled in"),
        (HALVES, "{divisor:g}", "{divisor:d}", "FORMULA cannot be filled in"),
        (HALVES, "{divisor:g}", "2", "no FORMULA shows the setting divisor"),
        (YES, "Edge case:", "Beware:", "says no `Edge case:`"),
        (YES, "def yes", "def no", "holds no function called yes"),
        (YES, "answer: list[str]", "answer", "the argument answer has no type"),
    ],
)
def test_a_broken_entry_is_found(house: Path, file: str, old: str, new: str, fault: str) -> None:
    swap(house, file, old, new)
    faults = registry_faults(source(house), house / "tests")
    assert any(fault in found and found.startswith(file) for found in faults), faults


@pytest.mark.parametrize("name", ["objective/test_halves.py", "rewards/test_yes.py"])
def test_an_entry_without_a_test_is_found(house: Path, name: str) -> None:
    (house / "tests" / name).write_text("# halves, yes\n")
    assert [fault.split(": ")[1] for fault in registry_faults(source(house), house / "tests")] == [
        f"no test under tests/{name.split('/')[0]} imports "
        + {"objective": "objective.advantages.halves", "rewards": "rewards.scorers.yes"}[name.split("/")[0]]
    ]
    (house / "tests" / name).unlink()
    assert len(registry_faults(source(house), house / "tests")) == 1


def test_a_column_of_the_data_may_have_a_default(house: Path) -> None:
    swap(house, YES, "answer: list[str]", "answer: list[str] | None = None")
    assert registry_faults(source(house), house / "tests") == []


def function_of(lines: int, *, indent: str = "") -> str:
    body = "".join(f"{indent}    x = {i}\n" for i in range(lines - 1))
    return f"{indent}def long() -> None:\n{body}"


def test_what_is_too_large_is_found(house: Path) -> None:
    add(house, "records/edge.py", function_of(80))
    add(house, "records/file.py", "x = 1\n" * 499)
    add(house, "training/loop.py", "x = 1\n" * 147)
    assert size_faults(source(house)) == []
    add(house, "records/edge.py", "class C:\n" + function_of(81, indent="    "))
    add(house, "records/file.py", "x = 1\n")
    add(house, "training/loop.py", "x = 1\n")
    assert size_faults(source(house)) == [
        "records/edge.py:83: long has 81 lines, over 80",
        "records/file.py: 501 lines, over 500",
        "training/loop.py: 151 lines, over 150",
    ]


def test_an_exception_excuses_one_thing_and_is_noticed_when_stale(
    house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(house, "records/edge.py", function_of(81))
    monkeypatch.setattr(
        sizes, "EXCEPTIONS", {"records/edge.py:long": "to test", "records/gone.py": "to test"}
    )
    assert size_faults(source(house)) == []
    assert stale_exceptions(source(house)) == ["records/gone.py"]


@pytest.mark.parametrize("name", ["utils.py", "records/helpers.py", "training/common/x.py", "core/x.py"])
def test_a_name_that_says_nothing_is_found(house: Path, name: str) -> None:
    add(house, name, "")
    assert any("a name that says nothing" in fault for fault in size_faults(source(house)))


def test_what_is_not_explained_is_found(house: Path) -> None:
    add(
        house,
        "records/x.py",
        "class Noun:\n"
        "    def verb(self): ...\n"
        '    def told(self):\n        """Told."""\n'
        "    def _private(self): ...\n"
        "async def f(): ...\n"
        "def _hidden(): ...\n",
    )
    (source(house) / "records" / "bare.py").write_text("x = 1\n")
    assert docstring_faults(source(house)) == [
        "records/bare.py:1: the module says nothing of itself",
        "records/x.py:2: Noun has no docstring",
        "records/x.py:3: verb has no docstring",
        "records/x.py:7: f has no docstring",
    ]


def test_what_is_not_finished_is_found(house: Path) -> None:
    add(house, "records/x.py", "# TODO later\ndef f():\n    raise NotImplementedError\n")
    assert len(unfinished(source(house))) == 2


def test_a_metric_without_a_meaning_is_found(house: Path) -> None:
    from tests.contracts.documentation import undocumented

    add(
        house,
        "training/x.py",
        'm = {"reward/mean": 1, "reward/meen": 2, f"reward/part/{x}/mean": 3, f"reward/part/{x}/max": 4, "a/b c": 5}\n',
    )
    names = metric_names(source(house))
    assert set(names) == {"reward/mean", "reward/meen", "reward/part/{label}/mean", "reward/part/{label}/max"}
    assert undocumented(names) == ["reward/meen", "reward/part/{label}/max"]
    assert names["reward/meen"] == "training/x.py:2"


def test_a_missing_or_empty_page_is_found(tmp_path: Path) -> None:
    from tests.contracts.documentation import FILES

    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text\n")
    assert missing_files(tmp_path) == []
    (tmp_path / "README.md").write_text("\n")
    (tmp_path / "CHANGELOG.md").unlink()
    assert missing_files(tmp_path) == ["README.md", "CHANGELOG.md"]
