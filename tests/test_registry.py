"""Names to functions: the folder, and a user's own (case l08)."""

import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise import registry
from groupwise.errors import ConfigError

ADVANTAGES = "groupwise.objective.advantages"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "rewards.py").write_text(
        "CONSTANT = 3\n\n"
        "def length(completions, *, scale: float = 1.0):\n    return [scale * len(c) for c in completions]\n"
    )
    (tmp_path / "broken.py").write_text("import not_there_at_all\n")
    (tmp_path / "raises.py").write_text("raise ZeroDivisionError('at import')\n")
    (tmp_path / "deep.py").write_text("import json\n\n\ndef read():\n    json.loads('no')\n\n\nread()\n")
    (tmp_path / "talks.py").write_text("text = 'a' * 1000\nraise ValueError(text)\n")
    (tmp_path / "wrong.py").write_text("def f(:\n")
    (tmp_path / "own_module_for_test.py").write_text("def g():\n    return 1\n")
    return tmp_path


def test_the_names_are_the_files_of_the_folder() -> None:
    names = registry.names(ADVANTAGES)
    folder = Path(__file__).parents[1] / "src" / "groupwise" / "objective" / "advantages"
    assert set(names) == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert list(names) == sorted(names)


def test_an_unknown_name_lists_what_there_is_and_the_nearest() -> None:
    with pytest.raises(
        ConfigError,
        match=r"no advantages entry is called 'group_zscor': did you mean 'group_zscore'\? there are",
    ):
        registry.find(ADVANTAGES, "group_zscor")
    with pytest.raises(
        ConfigError,
        match=r"no advantages entry is called 'x': there are batch_zscore, .*group_mean, group_zscore",
    ):
        registry.find(ADVANTAGES, "x")


def test_a_file_beside_the_configuration_is_found_from_anywhere(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    function = registry.find(ADVANTAGES, "rewards.py:length", base=base)
    assert function(["ab", "c"]) == [2.0, 1.0]
    assert registry.find(ADVANTAGES, "rewards.py:length", base=base) is function  # imported once
    assert function.__module__ in sys.modules  # so that it can be pickled


def test_two_files_of_one_name_are_two_modules(base: Path) -> None:
    other = base / "other"
    other.mkdir()
    (other / "rewards.py").write_text("def length(completions):\n    return [0.0 for _ in completions]\n")
    assert registry.import_function("rewards.py:length", base=base)(["ab"]) == [2.0]
    assert registry.import_function("rewards.py:length", base=other)(["ab"]) == [0.0]
    assert registry.import_function("other/rewards.py:length", base=base)(["ab"]) == [0.0]


def test_a_module_beside_the_configuration_is_found_and_its_folder_stays_on_the_path_once(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(sys.path)
    monkeypatch.setitem(sys.modules, "own_module_for_test", None)
    del sys.modules["own_module_for_test"]
    for _ in range(2):
        assert registry.import_function("own_module_for_test:g", base=base)() == 1
    assert sys.path == [*before, str(base.resolve())]  # last, so that it hides no installed module


@pytest.fixture
def forget() -> Iterator[None]:
    yield
    for name in ("beside_for_test", "later_for_test", "chosen_for_test"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize("name", ["deep/chosen_for_test.py:score", "chosen_for_test:score"])
def test_a_users_module_imports_what_stands_beside_it_at_once_and_later(
    base: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = base / "deep" if name.startswith("deep/") else base
    folder.mkdir(exist_ok=True)
    (folder / "beside_for_test.py").write_text("FACTOR = 2\n")
    (base / "later_for_test.py").write_text("TERM = 3\n")  # beside the configuration, in both cases
    (folder / "chosen_for_test.py").write_text(
        "from beside_for_test import FACTOR\n\n"
        "def score(completions):\n"
        "    import later_for_test\n"
        "    return [FACTOR * len(c) + later_for_test.TERM for c in completions]\n"
    )
    monkeypatch.chdir("/")
    function = registry.import_function(name, base=base)
    assert function(["ab"]) == [7]  # 2 x 2 + 3


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none.py:f", r"there is no file .*none\.py$"),
        ("./reward.py:f", r"there is no file .*reward\.py; did you mean rewards\.py:f\?$"),
        ("no/folder/reward.py:f", r"there is no file .*reward\.py$"),
        ("reward:f", r"there is no module 'reward' on the path or in .*; did you mean rewards:f\?$"),
        ("rewards.py:lenght", r"rewards\.py was imported but has no 'lenght'; did you mean 'length'\?"),
        ("rewards.py:zzz", r"has no 'zzz'; it has length"),
        ("rewards.py:CONSTANT", "'CONSTANT' is a int, not a function"),
        (
            "broken.py:f",
            "importing .*broken.py failed: ModuleNotFoundError: No module named 'not_there_at_all'",
        ),
        ("raises.py:f", r"importing .*raises.py failed: ZeroDivisionError: at import \(raises.py line 1\)"),
        ("deep.py:f", r"importing .*deep.py failed: JSONDecodeError: .* \(deep.py line 5\)"),
        ("deep:f", r"importing deep failed: JSONDecodeError: .* \(deep.py line 5\)"),
        ("talks.py:f", r"failed: ValueError: a{197}\.\.\. \(talks.py line 2\)"),
        ("wrong.py:f", r"importing .*wrong.py failed: SyntaxError: .* \(wrong.py line 1\)"),
        (":f", "there is no module or file before the colon; write module:function"),
        ("rewards.py:", "'rewards.py' is a file without a function's name; write rewards.py:length"),
        ("no_such_module_anywhere:f", "there is no module 'no_such_module_anywhere' on the path"),
        ("broken:f", r"importing broken failed: .*No module named 'not_there_at_all' \(broken.py line 1\)"),
        ("raises:f", "importing raises failed: ZeroDivisionError: at import"),
        ("json:lods", "json was imported but has no 'lods'; did you mean 'loads'"),
    ],
)
def test_a_failed_import_is_told_from_a_missing_name(base: Path, name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        registry.import_function(name, base=base)


def test_a_file_that_failed_can_be_mended_and_tried_again(base: Path) -> None:
    with pytest.raises(ConfigError):
        registry.import_function("wrong.py:f", base=base)
    (base / "wrong.py").write_text("def f():\n    return 2\n")
    assert registry.import_function("wrong.py:f", base=base)() == 2


def test_settings_are_the_keyword_only_arguments() -> None:
    def f(a, b=1, *, c=2, d="x"):
        return (a, b, c, d)

    assert {key: p.default for key, p in registry.settings(f).items()} == {"c": 2, "d": "x"}
    assert registry.bind(f, {"c": 5})(0) == (0, 1, 5, "x")
    assert registry.bind(f, {}) is f
    for wrong in ("b", "cc"):
        with pytest.raises(ConfigError, match=f"f has no setting '{wrong}'"):
            registry.bind(f, {wrong: 1})


def test_anything_callable_has_a_readable_name() -> None:
    class Judge:
        def __call__(self) -> None: ...

    assert registry.name_of(len) == "len"
    assert registry.name_of(functools.partial(functools.partial(len), [])) == "len"
    assert registry.name_of(Judge()) == "Judge"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def _own(): ...\ndef one(): ...\nasync def two(): ...\n", r"write my\.py:one \(it has one, two\)$"),
        ("def one(): ...\nraise ZeroDivisionError  # it is not run\n", r"write my\.py:one$"),
        ("def f(:", r"write my\.py:function$"),
        (None, r"'my\.py': there is no file .*my\.py; a function in a file is named my\.py:function"),
    ],
)
def test_a_file_without_a_function_names_those_in_it(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "my.py").write_text(text)
    with pytest.raises(ConfigError, match=said):
        registry.find(ADVANTAGES, "my.py", base=tmp_path)


def test_a_file_spelled_alike_is_named(base: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"there is no file .*reward\.py; did you mean rewards\.py:function\?$"
    ):
        registry.find(ADVANTAGES, "reward.py", base=base)


def test_the_file_of_a_name(base: Path) -> None:
    assert registry.file_of("rewards.py:length", base=base) == base / "rewards.py"
    assert registry.file_of("groupwise.registry:find", base=base) == Path(registry.__file__)
    assert registry.file_of("numeric", base=base) is None
    assert registry.file_of("not_imported_anywhere:f", base=base) is None


def test_a_file_in_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, **options: object) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refused)
    with pytest.raises(ConfigError, match="cannot be looked at: Permission denied"):
        registry.import_function("p/r.py:f", base=tmp_path)
