import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from groupwise.config.rewards import RewardConfig
from groupwise.errors import ConfigError, DataError, RewardError
from groupwise.rewards import Rewards, build, endpoint
from groupwise.rewards.endpoint import ServiceError, at_path
from groupwise.rewards.scorers.http import http
from tests.rewards.examples import HERE, pairs, values
from tests.rewards.services import drip, drop, drop_midway, serving, slow


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.01)


def asked(url: str, *, on_failure: str = "drop", **settings: Any) -> Rewards:
    config = RewardConfig(name="http", settings={"url": url, **settings}, on_failure=on_failure)
    return build([config], base=HERE)


def lengths(body: Any) -> Any:
    return {"scores": [float(len(c)) for c in body["completions"]]}


def why(rewards: Rewards, texts: list[str], **given: Any) -> list[str]:
    return [v.failure or "" for v in rewards.score(*pairs(texts, **given))]


def test_lists_in_lists_out_with_the_columns_that_are_asked_for() -> None:
    with serving(lengths) as service:
        rewards = asked(service.url, send=["answer"], per_request=2, extra={"task": "maths"})
        got = values(rewards, ["a", "bcd", ""], chat=True, columns={"answer": [1, 2, 3], "secret": [7, 8, 9]})
    assert got == [1.0, 3.0, 0.0]  # zero is a value
    assert sorted(service.bodies, key=lambda body: body["answer"]) == [
        {
            "prompts": [[{"role": "user", "content": f"question {i}"}] for i in (0, 1)],
            "completions": ["a", "bcd"],
            "answer": [1, 2],
            "task": "maths",
        },
        {
            "prompts": [[{"role": "user", "content": "question 2"}]],
            "completions": [""],
            "answer": [3],
            "task": "maths",
        },
    ]


def test_single_rollouts_and_a_path() -> None:
    with serving(lambda body: {"data": [{"score": len(body["completion"]) / 2}]}) as service:
        rewards = asked(service.url, shape="single", path="data.0.score")
        assert values(rewards, ["a", "bcd"]) == [0.5, 1.5]
    assert {"prompt": "question 0", "completion": "a"} in service.bodies


def test_zero_is_a_value_whatever_else_the_reply_holds() -> None:
    with serving(lambda body: {"scores": [0.0], "rewards": [1.0]}) as service:
        assert values(asked(service.url), ["a"]) == [0.0]
    with serving(lambda body: {"score": 0, "reward": 1.0}) as service:
        assert values(asked(service.url, shape="single"), ["a"]) == [0.0]


def test_null_is_for_what_the_service_leaves_open() -> None:
    with serving(lambda body: [None, 1]) as service:
        assert values(asked(service.url, path="", per_request=2), ["a", "b"]) == [None, 1.0]


LIES = {
    "no scores": (
        {"values": [1.0]},
        "its reply has no 'scores': at 'scores' there is the keys values; name the place",
    ),
    "one too many": ({"scores": [1.0, 2.0]}, "its reply has 2 numbers at 'scores' for 1 rollouts"),
    "a number": ({"scores": 1.0}, "its reply has 1.0 at 'scores', where a list of numbers belongs"),
    "a text": ({"scores": ["high"]}, "it gave the text 'high', not a number"),
    "a text of a number": ({"scores": ["0.5"]}, "it gave the text '0.5', not a number"),
    "an object": ({"scores": [{"value": 1}]}, "it gave a dict where one number belongs"),
    "NaN": (b'{"scores": [NaN]}', "it gave nan"),
    "infinity": (b'{"scores": [1e999]}', "it gave inf"),
    "not JSON": (b"<html>busy</html>", "answered with something that is not JSON: <html>busy</html>"),
    "half of it": (b'{"scores": [1.', "not JSON"),
    "nothing": (b"", "not JSON"),
    "deep": (b"[" * 100000, "not JSON"),
    "not text": (b"\xff\xfe\x00", "not JSON"),
    "another status": ((404, {"detail": "no such route"}), 'answered 404: {"detail": "no such route"}'),
    "elsewhere": ((307, b"", {"location": "http://127.0.0.1:1/"}), "answers 307, which points elsewhere"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_reply_of_another_form_fails_its_rollout_with_the_reason(lie: str) -> None:
    reply, reason = LIES[lie]
    with serving(lambda body: reply if body["completions"] == ["bad"] else lengths(body)) as service:
        rewards = asked(service.url)
        verdicts = rewards.score(*pairs(["a", "bad", "ab"]))
    assert [v.reward for v in verdicts] == [1.0, None, 2.0]
    assert reason in (verdicts[1].failure or "")
    assert "failed on rollout 1 (completion 'bad')" in (verdicts[1].failure or "")
    assert len(service.bodies) == 3  # a lie is not asked about again
    assert rewards.failures == {"http": 1}


def test_a_busy_or_failing_service_is_asked_again() -> None:
    replies = iter(
        [(503, {}), (429, {}, {"retry-after": "0.01"}), drop, drop_midway, (500, {}), {"scores": [4.0]}]
    )
    with serving(lambda body: next(replies)) as service:
        assert values(asked(service.url, attempts=6), ["a"]) == [4.0]
    assert len(service.bodies) == 6


@pytest.mark.parametrize("gone", [drop, drop_midway])
def test_a_service_that_drops_every_connection_fails_each_rollout_in_turn(gone: Any) -> None:
    with serving(lambda body: gone if "bad" in body["completions"] else lengths(body)) as service:
        reasons = why(asked(service.url, attempts=3), ["a", "bad"])
    assert reasons[0] == ""
    assert re.search(
        r"ServiceError: http://127.0.0.1:\d+ could not be asked: \w+.*\(tried 3 times\)", reasons[1]
    )
    assert len(service.bodies) == 4


@pytest.mark.parametrize("late", [slow(30, {"scores": [1.0]}), drip])
def test_a_slow_service_is_left_after_its_time_and_the_others_are_kept(late: Any) -> None:
    with serving(lambda body: late if "bad" in body["completions"] else lengths(body)) as service:
        started = time.monotonic()
        reasons = why(asked(service.url, timeout_seconds=0.4, attempts=2), ["abc", "bad", "a"])
        assert time.monotonic() - started < 10
        assert [bool(reason) for reason in reasons] == [False, True, False]
        assert "did not answer within 0.4 seconds (tried 2 times)" in reasons[1]


def test_nobody_there_ends_the_run_with_its_words() -> None:
    with serving(lengths) as service:
        url = service.url
    with pytest.raises(
        RewardError, match=r"failed on every rollout of a batch of 2.*could not be asked: ConnectError"
    ):
        values(asked(url, attempts=2), ["a", "b"])
    with pytest.raises(
        RewardError, match=r"failed on rollout 0.*ConnectError.*set rewards\[0\].on_failure to drop"
    ):
        values(asked(url, attempts=1, on_failure="fail"), ["a", "b"])


def test_requests_run_together_up_to_the_bound_and_equal_ones_once() -> None:
    with serving(lambda body: slow(0.05, lengths(body))) as service:
        texts = [str(i) * 3 for i in range(9)]
        got = values(asked(service.url, concurrency=3), texts)
        assert got == [3.0] * 9
        assert 2 <= service.most_at_a_time <= 3
        asyncio.run(http(["p"] * 5, ["c"] * 5, url=service.url))
        assert len(service.bodies) == 9 + 1


def test_an_endless_reply_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LARGEST_REPLY_BYTES", 2**20)
    with (
        serving(lambda body: b" " * 2**21) as service,
        pytest.raises(RewardError, match="sent more than 1 MB"),
    ):
        values(asked(service.url), ["a"])


def test_a_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SCORER_KEY", "very-secret-123")

    def refuses(body: Any) -> Any:
        return 401, {"error": "bad token Bearer very-secret-123"}

    with serving(refuses) as service:
        with pytest.raises(RewardError) as caught:
            values(asked(f"{service.url}/score?token=hidden", key_variable="SCORER_KEY"), ["a"])
        assert service.headers[0]["authorization"] == "Bearer very-secret-123"
    text = str(caught.value) + repr(caught.value.__cause__)
    assert "look at the key in the variable SCORER_KEY" in text
    assert "[key]" in text
    assert "very-secret-123" not in text
    assert "hidden" not in text
    with serving(lengths) as service:
        values(asked(service.url, key_variable="SCORER_KEY", key_header="X-Api-Key"), ["a"])
        assert service.headers[0]["x-api-key"] == "very-secret-123"


def test_half_a_key_is_not_shown_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a service says is shortened, which must not cut a key before it is looked for."""
    monkeypatch.setenv("SCORER_KEY", "very-secret-123")
    told = (500, {"error": "x" * 180 + "very-secret-123"})
    with serving(lambda body: told) as service, pytest.raises(RewardError) as caught:
        values(asked(service.url, key_variable="SCORER_KEY", attempts=1), ["a"])
    text = str(caught.value) + repr(caught.value.__cause__)
    assert "very-s" not in text
    assert "[key]" in text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "url is missing"),
        ({"url": "localhost:8000"}, "'localhost:8000' is not an address"),
        ({"url": "ftp://host/"}, "is not an address"),
        ({"url": "http://"}, "is not an address"),
        ({"url": "http://host:x/"}, "is not an address"),
        ({"url": "http://me:secret@host/"}, "url holds a user name or password"),
        ({"url": "http://h", "key_variable": "sk-abc"}, "is the name of an environment variable"),
        (
            {"url": "http://h", "key_variable": "NOT_SET_AT_ALL"},
            "the environment variable NOT_SET_AT_ALL.* is not set",
        ),
        ({"url": "http://h", "key_header": "X: y\n"}, "is not the name of a header"),
        ({"url": "http://h", "shape": "single", "per_request": 4}, "per_request goes with shape: lists"),
        ({"url": "http://h", "send": ["completions"]}, "'completions' would stand twice"),
        ({"url": "http://h", "send": ["a"], "extra": {"a": 1}}, "'a' would stand twice"),
        ({"url": "http://h", "timeout_seconds": 0}, "timeout_seconds"),
        ({"url": "http://h", "attempts": 0}, "attempts"),
        ({"url": "http://h", "retries": 3}, "no setting 'retries'"),
    ],
)
def test_wrong_settings_are_found_before_anything_is_asked(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        build([RewardConfig(name="http", settings=settings)], base=HERE)
    assert "sk-abc" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_column_that_is_not_there_is_one_sentence() -> None:
    with serving(lengths) as service, pytest.raises(DataError, match="'http' needs the column 'gold'"):
        values(asked(service.url, send=["gold"]), ["a"], columns={"answer": ["x"]})


def test_a_column_with_the_name_of_an_unused_setting_is_harmless() -> None:
    with serving(lengths) as service:
        assert values(asked(service.url), ["a"], columns={"path": ["x"], "attempts": [0]}) == [1.0]


def test_paths() -> None:
    reply = {"a": [{"b": 0}], "c.d": 1}
    assert at_path(reply, "a.0.b") == 0
    assert at_path(reply, "") == reply
    for path in ("a.1", "a.b", "a.0.b.c", "x", "a.-1"):
        with pytest.raises(ServiceError, match="its reply has no"):
            at_path(reply, path)


def test_nothing_secret_is_written_by_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import groupwise

    monkeypatch.setenv("SCORER_KEY", "very-secret-123")
    with serving(lengths) as service:
        groupwise.train(
            {
                "model": "tiny",
                "rollout": {"prompts_per_step": 1, "group_size": 2, "max_new_tokens": 3},
                "objective": {"kl": {"beta": 0.0}},
                "training": {"steps": 1},
                "rewards": [{"name": "http", "settings": {"url": service.url, "key_variable": "SCORER_KEY"}}],
                "run": {"dir": str(tmp_path / "run"), "sinks": ["tensorboard"], "save_model": False},
            },
            train=[{"prompt": "One"}],
        )
    assert (
        json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])["reward/failed_count"]
        == 0
    )
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or b"very-secret-123" not in path.read_bytes()
