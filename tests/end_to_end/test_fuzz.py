"""Configurations and data of any kind: a run that could start, or one sentence; never a traceback."""

import contextlib
import io
import json
import math
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from groupwise.cli.main import run
from groupwise.config import RunConfig, load
from groupwise.config.keys import known_keys, leaves
from groupwise.errors import GroupwiseError
from groupwise.model.tiny import tiny_tokenizer
from groupwise.prompts.encode import encode
from groupwise.training.inputs import read_inputs
from tests.config.test_load import OTHER

BASE: dict[str, Any] = {
    "model": "tiny",
    "prompts": {"train": "train.jsonl"},
    "rewards": [{"name": "numeric"}],
    "training": {"steps": 2},
    "run": {"dir": "run", "sinks": []},
}
ROW = '{"prompt": "What is 2 + 3?", "answer": "5"}\n'
TOKENIZER = tiny_tokenizer()

words = st.sampled_from(
    [
        *(
            "",
            "5",
            "-1",
            "0",
            "1e-6",
            "1e999",
            "nan",
            "None",
            "yes",
            "tiny",
            "grpo",
            "numeric",
            "a:b",
            "x.py:f",
        ),
        *("../..", "~", "/", "/dev/null", "auto", "cuda:99", "\0", "\ud800", "é\n", "{", "&a [*a]", "run"),
        *("!!python/object:os.system", "𝔘" * 300),
    ]
)
numbers = st.one_of(
    st.integers(-3, 10),
    st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**400]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 1e-320, 1.0, 0.5]),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, words, st.text(max_size=8), st.dates())
names = st.one_of(words, st.sampled_from(["name", "weight", "settings", "low", "eps"]), st.integers())
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)
others = ["rewards.0.name", "rewards.0.settings", "learning_rate", "x"]
keys = st.sampled_from([*known_keys(), *RunConfig.model_fields, *others])


def _pairs(key: str) -> list[tuple[str, Any]]:
    """A right value that is not the default, with whatever has to go with it, by dotted key."""
    value, extra = OTHER[key]
    entry = "rewards.0." if key.startswith("rewards.") else ""
    beside = [(entry + name, inner) for name, inner in leaves(extra)] if extra else []
    return [*beside, (key.replace("rewards.", entry) if entry else key, value)]


sensible = st.sampled_from([_pairs(key) for key in OTHER])


def laid(tree: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The tree with a value at a dotted key, whatever stood in the way."""
    made = json.loads(json.dumps(tree))
    node: Any = made
    *parents, last = key.split(".")
    for part in parents:
        if isinstance(node, list):
            node = node[0] if node else {}
            continue
        if not isinstance(node.get(part), dict | list):
            node[part] = {}
        node = node[part]
    if isinstance(node, list):
        node.append(value)
    else:
        node[last] = value
    return made


@st.composite
def trees(draw: st.DrawFn) -> bytes:
    """A configuration of right settings that may not fit together, or with a few that are anything."""
    tree: Any = BASE
    pairs = [pair for chosen in draw(st.lists(sensible, max_size=2)) for pair in chosen]
    wild = draw(st.integers(0, 2)) == 2
    if wild:
        pairs += draw(st.lists(st.tuples(keys, values), min_size=1, max_size=3))
    for key, value in pairs:
        try:
            tree = laid(tree, key, value)
        except (AttributeError, TypeError, ValueError):  # a date or the like is in the way of JSON
            continue
    try:
        text = yaml.safe_dump(tree, allow_unicode=draw(st.booleans()))
    except (yaml.YAMLError, ValueError):
        text = json.dumps(tree, default=str)
    data = text.encode("utf-8", errors="surrogatepass")
    if wild and draw(st.integers(0, 3)) == 0:  # bytes changed on the way
        place = draw(st.integers(0, max(0, len(data) - 1)))
        data = data[:place] + draw(st.binary(max_size=4)) + data[place + 1 :]
    return data


texts = st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace"))
configurations = st.one_of(*[trees()] * 8, st.binary(max_size=60), texts)

known = st.sampled_from(["prompt", "answer", "messages", "system", "completion", "role"])
columns = st.one_of(known, st.text(max_size=5))
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=12),
    words.filter(str.isprintable),
)
json_values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(columns, inner, max_size=3),
    max_leaves=6,
)
roles = st.sampled_from(["user", "assistant", "system", "tool", "", 5])
messages = st.lists(
    st.fixed_dictionaries({}, optional={"role": roles, "content": json_values}),
    max_size=3,
)
rows = st.one_of(
    st.dictionaries(columns, json_values, max_size=4),
    st.fixed_dictionaries(
        {"prompt": st.one_of(st.text(max_size=12), messages, json_values), "answer": json_values}
    ),
    json_values,
)


spoken = st.text(min_size=1, max_size=12).filter(lambda text: bool(text.strip()))
turns = st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": spoken}), min_size=1, max_size=2)
right_rows = st.fixed_dictionaries(
    {"prompt": st.one_of(spoken, turns), "answer": st.integers(-99, 99).map(str)},
    optional={"more": plain.filter(lambda value: not isinstance(value, float) or math.isfinite(value))},
)


@st.composite
def data_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """A file of rows, by name and content: right ones in half of the files, else anything."""
    lines, right = [], draw(st.booleans())
    for _ in range(draw(st.integers(int(right), 4))):
        row = draw(right_rows if right else st.one_of(st.just(json.loads(ROW)), rows))
        lines.append(json.dumps(row, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass"))
    data = draw(st.sampled_from([b"\n", b"\r\n", b"\n\n"] + [b"\r", b" "] * (not right))).join(lines)
    if right:
        return "train.jsonl", draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + data + draw(
            st.sampled_from([b"", b"\n"])
        )
    data = draw(st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b"[", b"\0"])) + data
    if draw(st.integers(0, 4)) == 0:
        place = draw(st.integers(0, len(data)))
        data = data[:place] + draw(st.binary(max_size=6)) + data[place:]
    other = ["train.json", "train.csv", "train.parquet", "train.txt", "train"]
    name = draw(st.sampled_from(["train.jsonl"] * 6 + other))
    return name, data


@contextlib.contextmanager
def folder_of(config: bytes, name: str, data: bytes) -> Any:
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        for other in ("held_out.jsonl", "h.jsonl"):
            Path(other).write_text(ROW, encoding="utf-8")
        Path("config.yaml").write_bytes(config)
        Path(name).write_bytes(data)
        yield Path(place)


class Tally:
    """How often something was accepted and how often refused, so that a fuzz that only knocks at the door fails."""

    def __init__(self) -> None:
        self.accepted, self.refused = 0, 0
        self.sentences: set[str] = set()

    def start(self, config: Path) -> None:
        """Everything that is done before a model is loaded, and what its tokenizer is asked for."""
        try:
            inputs = read_inputs(load(config))
            encode(inputs.train, inputs.config.prompts, TOKENIZER, limit_tokens=64)
        except GroupwiseError as error:
            self.refuse(str(error))
        else:
            self.accepted += 1

    def refuse(self, sentence: str) -> None:
        """A sentence for people, neither empty nor a page, and nothing of Python's in it."""
        assert 10 < len(sentence) < 1500, sentence
        assert "Traceback" not in sentence
        self.refused += 1
        self.sentences.add(re.sub(r"[^a-z ]+", "", sentence)[-40:])

    def both(self, *, least: float, different: int) -> None:
        """A share of each outcome, and so many ways of being refused."""
        total = self.accepted + self.refused
        shares = f"{self.accepted} of {total} accepted, {len(self.sentences)} kinds of refusal"
        assert min(self.accepted, self.refused) >= least * total, shares
        assert len(self.sentences) >= different, shares
        print(shares)


def fuzzed(strategy: st.SearchStrategy[Any], examples: int, told: Callable[[Any], None]) -> None:
    """Try so many examples: always the same ones, or with `GROUPWISE_FUZZ_SEED` others."""
    chosen = os.environ.get("GROUPWISE_FUZZ_SEED")
    test = settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=chosen is None,
    )(given(strategy)(told))
    (test if chosen is None else seed(int(chosen))(test))()


def configurations_are_told(examples: int) -> Tally:
    tally = Tally()

    def told(data: bytes) -> None:
        with folder_of(data, "train.jsonl", ROW.encode() * 3) as place:
            tally.start(place / "config.yaml")

    fuzzed(configurations, examples, told)
    return tally


def data_files_are_told(examples: int) -> Tally:
    tally = Tally()

    def told(file: tuple[str, bytes]) -> None:
        name, data = file
        config = {**BASE, "prompts": {"train": name}}
        with folder_of(yaml.safe_dump(config).encode(), name, data) as place:
            tally.start(place / "config.yaml")

    fuzzed(data_files(), examples, told)
    return tally


def test_configurations() -> None:
    configurations_are_told(200).both(least=0.05, different=20)


def test_data() -> None:
    data_files_are_told(200).both(least=0.1, different=10)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_configurations() -> None:
    configurations_are_told(2000).both(least=0.05, different=60)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_data_files() -> None:
    data_files_are_told(2000).both(least=0.1, different=20)


def test_the_command_says_one_line() -> None:
    tally = Tally()

    def told(given: tuple[bytes, tuple[str, bytes]]) -> None:
        config, file = given
        with folder_of(config, *file):
            code, said = commanded("check", "config.yaml")
        if code == 0:
            tally.accepted += 1
        else:
            assert code == 2, said
            assert len(said.splitlines()) == 1, said
            tally.refuse(said)

    fuzzed(st.tuples(configurations, data_files()), 60, told)
    tally.both(least=0.01, different=5)


def commanded(*words: str) -> tuple[int, str]:
    """The exit code of a command, and what it said as an error."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = run(list(words))
    return code, said.getvalue()


@st.composite
def whole_runs(draw: st.DrawFn) -> list[str]:
    """Settings that are right one by one, for a run of the tiny model."""
    pairs = [pair for chosen in draw(st.lists(sensible, min_size=1, max_size=3)) for pair in chosen]
    return [f"{key}={json.dumps(value)}" for key, value in pairs if not key.startswith(("run.", "rewards."))]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_whole_runs() -> None:
    tally = Tally()

    def told(words: list[str]) -> None:
        tree = {**BASE, "rollout": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 4}}
        with folder_of(yaml.safe_dump(tree).encode(), "train.jsonl", ROW.encode() * 3):
            code, said = commanded("train", "config.yaml", "training.steps=1", *words)
        assert code in (0, 2), f"{words}: {said}"
        if code == 0:
            tally.accepted += 1
        else:
            tally.refuse(said)

    fuzzed(whole_runs(), 100, told)
    tally.both(least=0.1, different=5)
