"""Keys and passwords are kept out of configurations, of what is said, and of what is written."""

from pathlib import Path
from typing import Any

import pytest

from groupwise.cli.main import run
from groupwise.config import load
from groupwise.errors import ConfigError, raised
from groupwise.records.run_folder import add_resumption, create, read_manifest, write_manifest
from groupwise.secrets import secret_in, without_secrets

KEY = "sk-abcdefghijklmnop1234"
HUB = "hf_" + "aB3" * 11


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"api_key": "x-y-z"}, "api_key"),
        ({"judge_apikey": "x-y-z"}, "judge_apikey"),
        ({"PASSWORD": "x-y-z"}, "PASSWORD"),
        ({"extra": {"auth_token": "x-y-z"}}, "extra.auth_token"),
        ({"extra": {"headers": [{"secret": "x-y-z"}]}}, "extra.headers[0].secret"),
        ({"url": "https://example.com/score?model=a&api_key=x-y-z"}, "url"),
        ({"database": "postgres://me:x-y-z@host/rows"}, "database"),
        ({"note": f"use {KEY} here"}, "note"),
        ({"list": ["a", HUB]}, "list[1]"),
    ],
)
def test_what_looks_like_one(settings: dict[str, Any], place: str) -> None:
    assert secret_in(settings) == place
    with pytest.raises(ConfigError, match="environment variable") as caught:
        load({"rewards": [{"name": "http", "settings": settings}]})
    assert place in str(caught.value)
    assert not any(secret in str(caught.value) for secret in (KEY, HUB, "x-y-z"))


@pytest.mark.parametrize(
    "settings",
    [
        {"key_variable": "JUDGE_KEY", "key_header": "X-Api-Key"},
        {"api_key": ""},
        {"api_key": None},
        {"tokenizer": "x", "stop_tokens": ["</s>"], "keywords": ["secret", "password"]},
        {"url": "https://example.com/score?token_count=3", "path": "data.key"},
        {"url": "http://localhost:8000/v1", "mail": "http://someone@host/"},
        {"pattern": "sk-short", "folder": "/data/sk-a-long-name-of-a-folder", "name": "hf_internal_models/x"},
    ],
)
def test_what_does_not(settings: dict[str, Any]) -> None:
    assert secret_in(settings) is None
    assert without_secrets(str(settings), {}) == str(settings)


def test_a_mapping_that_holds_itself() -> None:
    settings: dict[str, Any] = {}
    settings["a"] = [settings]
    assert secret_in(settings) is None


@pytest.mark.parametrize(
    ("key", "word"),
    [
        ("model.name", f"model.name=https://x/?token={HUB}"),
        ("rewards[0].settings.api_key", "rewards=[{name: http, settings: {api_key: 0123-456}}]"),
        ("run.dir", f"run.dir=runs/{KEY}"),
        ("no_such_thing", f"no_such_thing={KEY}"),
        ("run.sinks[0]", f"run.sinks=[{HUB}]"),
    ],
)
def test_in_any_setting_it_is_refused_before_it_is_shown(key: str, word: str) -> None:
    with pytest.raises(ConfigError, match="looks like a key or a password") as caught:
        load({"model": "tiny"}, [word])
    assert str(caught.value).startswith(f"command line: {key} ")
    assert not any(secret in str(caught.value) for secret in (KEY, HUB, "0123-456"))


def test_struck_out_of_what_is_said() -> None:
    variables = {
        "JUDGE_KEY": " very-secret ",
        "LONGER_TOKEN": "very-secret-one",
        "PIN_KEY": "1234",
        "HOME": "/home/me",
    }
    said = without_secrets(
        f"asking https://me:pw@host/a?key=abc&b=1 as very-secret-one (very-secret, {KEY}, {HUB}) from /home/me/1234",
        variables,
    )
    assert said == (
        "asking https://me:[key]@host/a?key=[key]&b=1 as [LONGER_TOKEN] ([JUDGE_KEY], [key], [key]) from /home/me/1234"
    )


def test_struck_out_of_exceptions_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "very-secret-two")
    error = RuntimeError("401 for https://host/?api_key=very-secret-two")
    assert raised(error) == "RuntimeError: 401 for https://host/?api_key=[key]"
    long = raised(RuntimeError("x" * 195 + "very-secret-two"))  # struck out before it is shortened
    assert long.endswith("xxx[J...")
    assert raised(ValueError("token very-secret-two")) == "ValueError: token [JUDGE_KEY]"


def test_struck_out_of_the_command_that_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "very-secret-three")
    folder = create(tmp_path / "run", overwrite=False)
    words = ["mine.py", "--token", "very-secret-three", KEY]
    write_manifest(folder, seed=0, command=words, data_files={})
    add_resumption(folder, at="step-000001", command=words, changed={})
    manifest = read_manifest(folder)
    assert (
        manifest["command"]
        == manifest["resumed"][0]["command"]
        == ["mine.py", "--token", "[MY_TOKEN]", "[key]"]
    )


def test_struck_out_of_tracebacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_TOKEN", "very-secret-four")
    (tmp_path / "train.jsonl").write_text('{"prompt": "One"}\n')
    (tmp_path / "mine.py").write_text(
        "import os\ndef scored(completions):\n"
        "    try:\n        raise OSError('refused ' + os.environ['MY_TOKEN'])\n"
        "    except OSError as error:\n        raise ValueError('asked with ' + os.environ['MY_TOKEN']) from error\n"
    )
    (tmp_path / "config.yaml").write_text(
        "model: tiny\nprompts: {train: train.jsonl}\nrewards: ['mine.py:scored']\nrun: {dir: run, sinks: []}\n"
    )
    assert run(["train", "config.yaml", "--debug"]) == 2
    said = capsys.readouterr()
    assert "Traceback" in said.err
    assert "refused [MY_TOKEN]" in said.err
    assert "asked with [MY_TOKEN]" in said.err.splitlines()[-1]
    assert "very-secret-four" not in said.out + said.err
