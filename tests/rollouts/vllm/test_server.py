"""A server of the run's own: its command, its end, and its return after it was killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.config.serving import VllmConfig
from groupwise.errors import EngineError
from groupwise.model.load import Policy
from groupwise.rollouts.engine import Sampling
from groupwise.rollouts.vllm.engine import VllmEngine
from groupwise.rollouts.vllm.server import INSIDE, Started, answers, environment, server_command
from tests.rollouts.examples import random_prompts, token_ids
from tests.rollouts.vllm.stub import Stub, handover_of

PLAIN = Sampling(max_new_tokens=6)


@pytest.fixture
def started(policy: Policy, python: str, tmp_path: Path) -> Iterator[tuple[VllmEngine, Started]]:
    config = VllmConfig(restarts=1, retry_seconds=60.0, start_seconds=60.0)
    handover = handover_of(policy, tmp_path / "weights")

    def command(port: int) -> list[str]:
        assert handover.last is not None
        return [python, "--port", str(port), "--model", str(handover.last.folder)]

    server = Started(config, command, tmp_path / "log")
    engine = VllmEngine(policy, server, handover, config)
    yield engine, server
    engine.close()


def test_a_server_that_is_killed_is_started_again_with_the_last_weights(
    started: tuple[VllmEngine, Started],
) -> None:
    engine, server = started
    prompts = random_prompts((5, 9))
    engine.load_weights(3, engine.policy.model)
    expected = token_ids(engine.generate(prompts, PLAIN, group_size=3, seed=(0,)))
    stub = Stub(server.url)
    first = stub.told["pid"]
    stub.faults(die=1)  # in the middle of a batch
    found = engine.generate(prompts, PLAIN, group_size=3, seed=(0,))
    assert token_ids(found) == expected
    assert {rollout.policy_version for group in found for rollout in group} == {3}
    assert stub.told["pid"] != first
    os.kill(stub.told["pid"], signal.SIGKILL)  # and no further time
    with pytest.raises(EngineError, match=r"ended by itself \(exit status -9\).*--resume"):
        engine.generate(prompts, PLAIN, group_size=3, seed=(0,))


def test_the_server_ends_with_the_engine(started: tuple[VllmEngine, Started]) -> None:
    engine, server = started
    engine.load_weights(0, engine.policy.model)
    assert answers(server.url)
    engine.close()
    assert not answers(server.url)
    assert server.gone is None
    with pytest.raises(EngineError, match="the run has ended"):
        engine.generate(random_prompts([5]), PLAIN, group_size=2, seed=(0,))


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    config = VllmConfig(start_seconds=60.0)
    server = Started(config, lambda port: [sys.executable, "-m", "no_such_module"], tmp_path / "log")
    with pytest.raises(EngineError, match=r"No module named no_such_module.*its log is .*log"):
        server.open()
    server = Started(config, lambda port: [str(tmp_path / "python")], tmp_path / "log")
    with pytest.raises(EngineError, match=r"cannot be started by .*rollout\.vllm\.python"):
        server.open()


def test_a_server_that_never_answers_is_ended(tmp_path: Path) -> None:
    config = VllmConfig(start_seconds=0.5)
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    server = Started(config, lambda port: words, tmp_path / "log")
    with pytest.raises(EngineError, match=r"does not answer within rollout\.vllm\.start_seconds=0\.5"):
        server.open()
    assert server._process is not None
    assert server._process.poll() is not None


def test_the_command_and_what_it_is_started_in() -> None:
    words = server_command(
        "python",
        Path("/w"),
        port=8101,
        dtype="bfloat16",
        context_tokens=512,
        lora_rank=None,
        eager=True,
        more=["--max-num-seqs=4"],
    )
    text = " ".join(words)
    assert text.startswith("python -P -m vllm.entrypoints.openai.api_server --model /w ")
    for part in (
        *("--port 8101", "--dtype bfloat16", "--max-model-len 512", "--logprobs-mode processed_logprobs"),
        *("--enable-scale-out", "--enforce-eager", '--weight-transfer-config {"backend": "groupwise"}'),
        "--worker-extension-cls groupwise_vllm.Extension",
        "--generation-config vllm",  # case i05: defaults of the model's folder do not apply
    ):
        assert part in text
    assert text.endswith("--max-num-seqs=4")
    assert "--enable-lora" not in text
    lora = server_command(
        "p", Path("/w"), port=1, dtype="float32", context_tokens=9, lora_rank=9, eager=False, more=[]
    )
    assert lora[-5:] == ["--enable-lora", "--max-loras", "1", "--max-lora-rank", "16"]
    given = {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "x",
        "PATH": "/bin",
        "PYTHONPATH": "/mine",
    }
    made = environment(given)
    assert made["PATH"] == "/bin"
    assert made["PYTHONPATH"] == str(INSIDE)
    assert made["VLLM_SERVER_DEV_MODE"] == "1"
    assert not {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"} & made.keys()
    assert sorted(path.name for path in INSIDE.glob("*.py")) == ["groupwise_vllm.py", "groupwise_wire.py"]
