"""The engine that asks a vLLM server: token ids in and out, the weights that sampled each rollout checked by label."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from groupwise.config.serving import VllmConfig
from groupwise.errors import EngineError
from groupwise.model.load import Policy
from groupwise.records import Prompt, Rollout, StopReason
from groupwise.rollouts.engine import Sampling
from groupwise.rollouts.vllm.client import Client, LostError
from groupwise.rollouts.vllm.handover import Handover

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 10.0
_ANY_TOKENS = [1, 2, 3, 4, 5, 6, 7, 8]
_LIKELIEST, _TELLING_NATS = 5, 1e-3


class Server(Protocol):
    """A server that is there, or that is started when it is first needed."""

    def open(self) -> str:
        """The address, once the server answers. Every process of a run calls it at the same time.

        Raises:
            EngineError: it does not.
        """
        ...

    @property
    def gone(self) -> str | None:
        """Why the server will not come back; None while it may."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One request: some rollouts of one prompt."""

    prompt: Prompt
    group_indices: tuple[int, ...]
    greedy: bool
    body: Mapping[str, Any]


class VllmEngine:
    """Samples by a server. See `engine.Engine`.

    It gives no entropies and no kept mass, which a server does not tell. A rollout's random numbers follow from seed,
    prompt and index, but its tokens also from the last bits of the server's log-probs, which depend on what else is
    being sampled.
    """

    same_as_trainer = False
    """Another program computes, in another order of summation and often another precision."""

    def __init__(self, policy: Policy, server: Server, handover: Handover, config: VllmConfig) -> None:
        """Nothing is asked yet.

        Args:
            policy: its stop tokens, context and words; its weights are read by `handover`.
            server: what is asked.
            handover: how it is given weights.
            config: limits of time and number.
        """
        self.policy, self.config = policy, config
        self._server, self._handover = server, handover
        self._client: Client | None = None
        self._checked = self._closed = False
        self.version = 0

    def load_weights(self, version: int, source: Any) -> None:
        """Hand the policy's weights over as they are; rollouts carry `version` from then on.

        Raises:
            EngineError: the server could not be given them within `retry_seconds`.
        """
        self.version = version
        self._handover.pack(version)
        self._open()
        self._handover.share(self._delivered)

    def close(self) -> None:
        """End the server, where the run started it. What another thread still samples ends with an error."""
        self._closed = True
        self._handover.close()
        if self._client is not None:
            self._client.close()
            self._client = None
        self._server.close()

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        group_size: int,
        seed: Sequence[int],
        greedy: bool = False,
    ) -> list[list[Rollout]]:
        """See `engine.Engine.generate`."""
        context = self.policy.context_tokens
        for prompt in prompts:
            if len(prompt.token_ids) + sampling.max_new_tokens > context:
                raise EngineError(
                    f"prompt {prompt.id} has {len(prompt.token_ids)} tokens, and with {sampling.max_new_tokens} new "
                    f"ones it exceeds the model's {context}; lower rollout.max_new_tokens or prompts.max_prompt_tokens"
                )
        if self._handover.last is None:
            self.load_weights(self.version, self.policy.model)
        asked = []
        for prompt in prompts:
            indices = tuple(range(group_size))
            if group_size:
                asked.append(self._asked(prompt, sampling, indices, seed, greedy=sampling.greedy))
            if greedy:
                asked.append(self._asked(prompt, sampling, (group_size,), seed, greedy=True))
        found = {
            (rollout.prompt_id, rollout.group_index): rollout
            for answered in self._answers(asked)
            for rollout in answered
        }
        return [[found[prompt.id, g] for g in range(group_size + greedy)] for prompt in prompts]

    def _asked(
        self,
        prompt: Prompt,
        sampling: Sampling,
        indices: tuple[int, ...],
        seed: Sequence[int],
        *,
        greedy: bool,
    ) -> _Asked:
        drawn: dict[str, Any] = {"temperature": 0.0, "n": 1}
        if not greedy:
            drawn = {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k or 0,
                "min_p": sampling.min_p,
                "n": len(indices),
                "seed": seed_of(seed, prompt.id),
            }
        limit = min(sampling.max_new_tokens, prompt.max_new_tokens or sampling.max_new_tokens)
        return _Asked(
            prompt=prompt,
            group_indices=indices,
            greedy=greedy,
            body={
                "token_ids": prompt.token_ids.tolist(),
                "sampling_params": {
                    **drawn,
                    "max_tokens": limit,
                    "stop_token_ids": list(self.policy.stop_token_ids),
                    "ignore_eos": True,  # the stop tokens are stated
                    "logprobs": 0,  # that of the sampled token
                    "detokenize": False,
                },
            },
        )

    def _answers(self, asked: Sequence[_Asked]) -> list[list[Rollout]]:
        """What the server samples; requests that are lost are made again, once it has the right weights."""
        answers: dict[int, list[Rollout]] = {}
        until, pause = 0.0, _FIRST_PAUSE_SECONDS
        with ThreadPoolExecutor(
            max_workers=max(1, min(self.config.concurrency, len(asked))), thread_name_prefix="groupwise-ask"
        ) as pool:
            while len(answers) < len(asked):
                left = [i for i in range(len(asked)) if i not in answers]
                given = pool.map(self._ask_once, [asked[i] for i in left])
                lost: LostError | None = None
                before = len(answers)
                for i, answer in zip(left, given, strict=True):
                    if isinstance(answer, LostError):
                        lost = answer
                    else:
                        answers[i] = answer
                if lost is None:
                    break
                now = time.monotonic()
                if not until or len(answers) > before:
                    until, pause = now + self.config.retry_seconds, _FIRST_PAUSE_SECONDS
                elif now + pause > until:
                    raise self._given_up(lost)
                _log.warning("the vLLM server at %s was lost (%s); it is asked again", self._url, lost)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                self._retried(self._deliver_if_missing)
        return [answers[i] for i in range(len(asked))]

    def _ask_once(self, asked: _Asked) -> list[Rollout] | LostError:
        try:
            return self._ask(asked)
        except LostError as error:
            return error

    def _ask(self, asked: _Asked) -> list[Rollout]:
        parcel = self._handover.last
        assert parcel is not None
        body = {**asked.body, "model": parcel.label} if self._handover.adapter else asked.body
        answer = self._open().post("/inference/v1/generate", body)
        try:
            choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
            if len(choices) != asked.body["sampling_params"]["n"]:
                raise ValueError(f"{len(choices)} responses instead of {asked.body['sampling_params']['n']}")
            for choice in choices:
                self._check_weights(choice, parcel.label)
            read = [(_numbers(choice, self.policy.stop_token_ids)) for choice in choices]
        except (KeyError, TypeError, ValueError) as error:
            raise self._not_understood(error) from error
        if asked.greedy:
            read = read * len(asked.group_indices)
        return [
            self._rollout(asked.prompt, g, *of_one)
            for g, of_one in zip(asked.group_indices, read, strict=True)
        ]

    def _check_weights(self, choice: Mapping[str, Any], label: str) -> None:
        """Raise a LostError where a response was not sampled, from first token to last, with the weights wanted.

        An adapter is asked for by its label, which no other has, so that a server without it refuses.
        """
        if choice["finish_reason"] == "abort":
            raise LostError("it aborted a request")
        if self._handover.adapter:
            return
        spans = choice["weight_versions"]
        if not spans:
            raise EngineError(
                f"the vLLM server at {self._url} does not say which weights sampled a response, so that old ones would "
                "go unseen; it has to be vLLM 0.32 or newer"
            )
        versions = {str(span["version"]) for span in spans}
        if versions != {label}:
            raise LostError(f"it sampled with the weights {', '.join(sorted(versions))} instead of {label}")

    def _rollout(
        self, prompt: Prompt, group_index: int, ids: Sequence[int], logprobs: Sequence[float], stopped: bool
    ) -> Rollout:
        if (
            not np.isfinite(logprobs).all() or min(logprobs) <= -9999
        ):  # what vLLM writes for minus infinity and NaN
            raise EngineError(
                "sampling met log-probs that are not finite: the model's weights hold NaN or infinity, or its logits "
                "overflow; load an earlier checkpoint, or lower training.learning_rate"
            )
        return Rollout(
            prompt_id=prompt.id,
            group_index=group_index,
            token_ids_T=np.array(ids, dtype=np.int32),
            trainable_T=np.ones(len(ids), dtype=np.bool_),
            # Rounding can leave a log-prob a little above 0.
            sampler_logprobs_T=np.minimum(np.array(logprobs, dtype=np.float32), 0.0),
            kept_mass_T=None,
            entropy_T=None,
            stop_reason=StopReason.STOP if stopped else StopReason.LENGTH,
            policy_version=self.version,
            text=self.policy.decode(list(ids[:-1] if stopped else ids)),
        )

    @property
    def _url(self) -> str:
        return "?" if self._client is None else self._client.base_url

    def _open(self) -> Client:
        if self._closed:
            raise EngineError("the run has ended, and with it what samples for it")
        if self._client is None:
            self._client = Client(self._server.open(), self.config)
        return self._client

    def _delivered(self) -> str:
        """Have the server load the last weights, whatever it takes; their label."""
        assert self._handover.last is not None
        self._retried(lambda: self._handover.deliver(self._open()))
        if not self._checked:
            self._retried(self._refuse_raw_logprobs)
            self._checked = True
        return self._handover.last.label

    def _deliver_if_missing(self) -> None:
        client = self._open()
        client.get("/health")
        if not self._handover.held_by(client):
            self._handover.deliver(client)
            _log.warning("the vLLM server at %s has been given its weights again", self._url)

    def _retried(self, act: Callable[[], None]) -> None:
        """Act, again and again until it works or `retry_seconds` have passed."""
        until = time.monotonic() + self.config.retry_seconds
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return act()
            except LostError as error:
                if self._server.gone is not None or time.monotonic() + pause > until:
                    raise self._given_up(error) from error
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _given_up(self, error: LostError) -> EngineError:
        why = self._server.gone or f"tried for rollout.vllm.retry_seconds={self.config.retry_seconds:g}"
        return EngineError(
            f"the vLLM server at {self._url} is lost ({error}); {why}. Start it again and go on with --resume"
        )

    def _refuse_raw_logprobs(self) -> None:
        """Make sure that the server's log-probs are of the distribution that it draws from.

        Half the temperature doubles the distances between log-probs, but not those of a server that leaves the
        temperature out of them.

        Raises:
            EngineError: it does leave it out.
        """
        parcel = self._handover.last
        assert parcel is not None

        def likeliest(temperature: float) -> dict[int, float]:
            sampling = {
                "temperature": temperature,
                "n": 1,
                "max_tokens": 1,
                "logprobs": _LIKELIEST,
                "detokenize": False,
            }
            body: dict[str, Any] = {"token_ids": _ANY_TOKENS, "sampling_params": sampling}
            if self._handover.adapter:
                body["model"] = parcel.label
            answer = self._open().post("/inference/v1/generate", body)
            listed = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            return {int(each["token_id"]): float(each["logprob"]) for each in listed}

        try:
            warm, cold = likeliest(1.0), likeliest(0.5)
        except (KeyError, TypeError, IndexError) as error:
            raise self._not_understood(error) from error
        both = sorted(warm.keys() & cold.keys(), key=lambda token: warm[token])
        if not both:
            return
        apart, apart_cold = (given[both[-1]] - given[both[0]] for given in (warm, cold))
        if apart > _TELLING_NATS and apart_cold < 1.5 * apart:
            raise EngineError(
                f"the vLLM server at {self._url} gives log-probs without the temperature; start it with "
                "--logprobs-mode processed_logprobs"
            )

    def _not_understood(self, error: Exception) -> EngineError:
        return EngineError(
            f"the vLLM server at {self._url} gives what is not understood ({type(error).__name__}: {error}); vLLM 0.32 "
            "is what this was written for"
        )


def seed_of(seed: Sequence[int], prompt_id: str) -> int:
    """The seed of a prompt's first rollout, below 2^62; vLLM adds the index of each further one.

    Args:
        seed: whole numbers, such as (run seed, step).
        prompt_id: of the prompt.
    """
    name = repr((tuple(int(s) for s in seed), prompt_id)).encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") >> 2


def _numbers(choice: Mapping[str, Any], stops: Sequence[int]) -> tuple[list[int], list[float], bool]:
    """Token ids and log-probs of a response, and whether it ended by itself."""
    ids = [int(token) for token in choice["token_ids"]]
    content = choice["logprobs"]["content"]
    if not ids or len(content) != len(ids):
        raise ValueError(f"{len(content)} log-probs for {len(ids)} tokens")
    if any(int(each["token_id"]) != token for each, token in zip(content, ids, strict=True)):
        raise ValueError("log-probs of other tokens than were sampled")
    return ids, [float(each["logprob"]) for each in content], ids[-1] in stops
