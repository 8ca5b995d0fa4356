import math
from pathlib import Path

import pytest
import yaml as plain_yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.config import yaml
from groupwise.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # What YAML 1.1 makes of each: text, text, False, True, 8, 90, 1000, a date, 16, 685230.15
        ("1e-6", 1e-6),
        ("1e3", 1000.0),
        ("no", "no"),
        ("on", "on"),
        ("010", "010"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2026-01-01", "2026-01-01"),
        ("0x10", "0x10"),
        ("685_230.15", "685_230.15"),
        ("None", "None"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("-7", -7),
        (".5", 0.5),
        ("1.", 1.0),
        ("-.inf", -math.inf),
        ("'1e-6'", "1e-6"),
        ('{"rank": 8}', {"rank": 8}),
        ("[a, 1, null]", ["a", 1, None]),
    ],
)
def test_a_scalar_is_what_it_looks_like(text: str, value: object) -> None:
    found = yaml.parse(text, place="p")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: the key 'a' is given twice; keep one"),
        ("lora:\n  rank: 4\n  rank: 8\n", "line 3: the key 'rank' is given twice"),
        ("1: a", "line 1: the key 1 is not text"),
        ("? [a]\n: b", "is not text"),
        ("a: [1", "line 1: not readable as YAML"),
        ("a: b: c", "line 1: not readable as YAML: mapping values are not allowed here"),
        ("\ta: 1", "line 1: not readable as YAML"),
        ("a: \x00", "not readable as YAML: unacceptable character"),
        ("a: &x [*x]", "not readable as YAML"),
        ("a: !!python/object:os.system x", "not readable as YAML"),
        ("a: !!timestamp 2020", "not readable as YAML"),
        ("a: !!set {x}", "not readable as YAML"),
        ("a: !!int abc", "not readable as YAML"),
        ("!!map [1]", "not readable as YAML"),
        ("a: " + "9" * 5000, "line 1: a number of 5000 digits; no setting is that large"),
        ("---\na: 1\n---\nb: 2", "line 3: not readable as YAML"),
        ("[" * 3000, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_its_place(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        yaml.parse(text, place="c.yaml")
    assert str(caught.value).startswith("c.yaml: ")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_a_mapping_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    for text, why in (
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("[a]", "holds a list"),
        ("5", "holds a int"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=why):
            yaml.read(path)
    path.write_bytes(b"a: \xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read as UTF-8 text"):
        yaml.read(path)
    with pytest.raises(
        ConfigError, match=r"there is no configuration file .*; `groupwise init DIR` writes one"
    ):
        yaml.read(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="is a folder"):
        yaml.read(tmp_path)
    path.write_text('\ufeff{"a": 1e-6}', encoding="utf-8")
    assert yaml.read(path) == {"a": 1e-6}


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(
        [
            "1e-6",
            "010",
            "no",
            "None",
            "null",
            "~",
            "1:30",
            "0x1",
            "true",
            "2026-01-01",
            "=",
            "<<",
            "- a",
            "a: b",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(VALUES)
def test_what_is_written_is_read_back_equal(value: object) -> None:
    found = yaml.parse(yaml.dump(value), place="p")
    assert repr(found) == repr(value)


def test_other_readers_see_the_same_values_too() -> None:
    value = {
        "rate": 1e-06,
        "big": 1e22,
        "zero": 0.0,
        "flag": True,
        "none": None,
        "list": [1, "no", "1e-6"],
        "text": "a: b",
    }
    assert plain_yaml.safe_load(yaml.dump(value)) == value


def test_aliases_that_stand_for_millions_of_values_are_refused() -> None:
    # Each line holds the one before ten times: 10^7 values in eight lines.
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 8)]
    with pytest.raises(ConfigError, match=r"^c\.yaml: stands for more than 100000 values once its aliases"):
        yaml.parse("\n".join(lines), place="c.yaml")
    assert yaml.parse("a: &a [1]\nb: [*a, *a]", place="c.yaml") == {"a": [1], "b": [[1], [1]]}


def test_a_file_in_utf_16_says_what_to_save_it_as(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes("a: 1".encode("utf-16"))
    with pytest.raises(ConfigError, match=r"the file is UTF-16; save it as UTF-8$"):
        yaml.read(path)
    path.write_bytes(b"\xef\xbb\xbfa: 1")
    assert yaml.read(path) == {"a": 1}


def test_a_file_that_may_not_be_read_says_how_to_mend_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_dir", denied)  # as in a folder of mode 000; root may look anywhere
    with pytest.raises(ConfigError, match=r"c\.yaml cannot be read: permission denied; allow yourself"):
        yaml.read(tmp_path / "c.yaml")


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"there is no configuration file|cannot be read: .*; give the path"
    ):
        yaml.read(tmp_path / name)
