import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from groupwise.config.rewards import RewardConfig
from groupwise.errors import ConfigError, RewardError
from groupwise.rewards import Rewards, build, workers
from tests.rewards import slow_rewards
from tests.rewards.examples import HERE, pairs, values


def named(function: str, **options: Any) -> Rewards:
    return build(
        [RewardConfig(name=f"tests.rewards.slow_rewards:{function}", **options)], base=HERE.parents[1]
    )


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")
    return not (stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z")


@pytest.mark.parametrize("function", ["stuck", "spinning", "stuck_later", "blocking"])
def test_one_stuck_completion_of_eight_fails_alone_and_the_next_step_is_untouched(
    function: str, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["a" * (i + 1) for i in range(8)]
    texts[3] = "stuck"
    rewards = named(function, timeout_seconds=0.5, on_failure="drop", workers=2)
    started = time.monotonic()
    verdicts = rewards.score(*pairs(texts))
    assert time.monotonic() - started < 30  # 2 x (limit + grace), and the start of four interpreters
    assert [v.reward for v in verdicts] == [1.0, 2.0, 3.0, None, 5.0, 6.0, 7.0, 8.0]
    assert verdicts[3].failure == (
        f"the reward {function!r} failed on rollout 3 (completion 'stuck'): "
        "TimeoutError: it took longer than timeout_seconds, 0.5 (the prompt is data.jsonl:3)"
    )
    assert rewards.failures == {function: 1}
    assert rewards.take_metrics().totals[f"reward/part/{function}/failed_count"] == 1
    assert any("failed on rollout 3" in message for message in caplog.messages)
    assert values(rewards, ["abc", "de"]) == [3.0, 2.0]
    rewards.close()


def test_a_worker_that_ends_itself_costs_its_rollout_alone() -> None:
    rewards = named("exiting", workers=1, on_failure="value", failure_value=-1.0)
    verdicts = rewards.score(*pairs(["exit", "ab", "kill", "abc"]))
    assert [v.reward for v in verdicts] == [-1.0, 2.0, -1.0, 3.0]
    assert "ChildProcessError: the worker process that it ran in ended itself with exit code 3" in (
        verdicts[0].failure or ""
    )
    assert "was ended by SIGKILL" in (verdicts[2].failure or "")
    assert values(rewards, ["abcd"]) == [4.0]
    rewards.close()


def test_under_fail_a_time_out_ends_the_run_with_its_place() -> None:
    rewards = named("stuck", timeout_seconds=0.3)
    with pytest.raises(
        RewardError, match=r"failed on rollout 1 \(completion 'stuck'\): TimeoutError: it took longer"
    ):
        values(rewards, ["a", "stuck"])
    rewards.close()


def test_an_exception_comes_back_as_it_was_with_the_traceback_of_the_worker() -> None:
    rewards = named("raising", workers=1)
    with pytest.raises(RewardError, match=r"failed on rollout 2.*ValueError: it is bad") as caught:
        values(rewards, ["a", "b", "bad", "c"])
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError)
    assert "In the worker process:" in cause.__notes__[0]
    assert 'raise ValueError("it is bad")' in cause.__notes__[0]
    rewards.close()


@pytest.mark.parametrize(("said", "error"), [("ctrl-c", KeyboardInterrupt), ("quit", SystemExit)])
def test_interruptions_inside_a_worker_end_the_run(said: str, error: type[BaseException]) -> None:
    rewards = named("interrupting", workers=1, on_failure="drop")
    with pytest.raises(error):
        values(rewards, [said])
    rewards.close()


def test_the_batch_is_divided_among_workers_which_are_kept() -> None:
    rewards = named("who", workers=2)
    prompts, rollouts = pairs(["a", "b", "c"])
    processes = {v.reward for v in rewards.score(prompts, rollouts, step=7)}
    logged = rewards.take_logged()
    assert (logged["rollouts"], logged["step"]) == ([1.0, 2.0], [7.0, 7.0])
    limit = time.monotonic() + 30
    while len(processes) < 2 and time.monotonic() < limit:  # the first that has started may answer for both
        processes |= {v.reward for v in rewards.score(prompts, rollouts)}
    assert os.getpid() not in processes
    assert len(processes) == 2
    rewards.close()
    assert not any(alive(int(process)) for process in processes if process)


def test_what_a_stuck_function_started_is_ended_with_it(tmp_path: Path) -> None:
    note = tmp_path / "ids"
    rewards = named("with_children", timeout_seconds=1.5, on_failure="drop")
    with pytest.raises(RewardError, match="failed on every rollout"):
        values(rewards, ["a"], columns={"note": [str(note)]})
    worker, child = map(int, note.read_text().split())
    deadline = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(worker)
    assert not alive(child)
    rewards.close()


def test_ctrl_c_while_a_worker_is_at_work_ends_it_and_is_passed_on() -> None:
    rewards = named("stuck", timeout_seconds=1000, on_failure="drop")
    assert values(rewards, ["warm"]) == [4.0]
    threading.Timer(0.3, lambda: os.kill(os.getpid(), 2)).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        values(rewards, ["stuck"])
    assert time.monotonic() - started < 20
    assert values(rewards, ["fine"]) == [4.0]
    rewards.close()


def test_when_nothing_answers_the_rest_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LOST_IN_A_ROW", 3)
    rewards = named("stuck", timeout_seconds=0.1, on_failure="drop", workers=2)
    started = time.monotonic()
    with pytest.raises(RewardError, match="failed on every rollout of a batch of 300"):
        values(rewards, ["stuck"] * 300)
    assert time.monotonic() - started < 60  # and not 300 starts of an interpreter
    rewards.close()


def test_arrays_come_back_and_what_cannot_is_said() -> None:
    rewards = named("array", workers=1)
    assert values(rewards, ["abc", "d"]) == [3.0, 1.0]
    rewards.close()
    rewards = named("lines", workers=1)
    with pytest.raises(RewardError, match="returned a generator that cannot leave its worker process"):
        values(rewards, ["abc"])
    rewards.close()


def test_columns_that_cannot_be_sent_are_one_sentence() -> None:
    def lines(completions: list[str]) -> list[float]:
        return []

    rewards = build(
        [RewardConfig(name="tests.rewards.slow_rewards:with_children", workers=1)], base=HERE.parents[1]
    )
    with pytest.raises(
        RewardError, match=r"'with_children' runs in worker processes, but .* cannot be sent there"
    ):
        values(rewards, ["a"], columns={"note": [lines]})


def test_a_function_given_in_python_can_have_a_limit_when_a_module_holds_it() -> None:
    options = {"timeout_seconds": 0.5, "on_failure": "drop"}
    rewards = build([], base=HERE, functions=[(slow_rewards.stuck, options)])
    assert values(rewards, ["abc", "stuck"]) == [3.0, None]
    rewards.close()
    with pytest.raises(
        ConfigError, match=r"the function lambda|the function <lambda> cannot be run in worker"
    ):
        build([], base=HERE, functions=[(lambda completions: [0.0], {"workers": 2})])


def test_a_built_in_scorer_runs_in_workers_with_its_settings() -> None:
    configs = [
        RewardConfig(name="length", settings={"target": 2, "unit": "characters", "alpha": 1}, workers=2)
    ]
    rewards = build(configs, base=HERE)
    assert values(rewards, ["abcd", "ab", "abc"]) == [-2.0, 0.0, -1.0]
    rewards.close()
