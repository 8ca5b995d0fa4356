"""Stands in for a vLLM server: its paths, its answers, its ways to fail, over a real model in plain transformers.

serve(["--port", "N", "--model", "FOLDER", ...]) does not end; the model may be left out, further words are kept.
Weights are sent to it with the very file that receives them inside vLLM; a model is needed for that, to put them into.
POST /test {"busy": 2, "stale": true, ...} sets what goes wrong from then on; GET /test tells what was asked.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    LogitsProcessorList,
    MinPLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from groupwise.rollouts.vllm.server import INSIDE


class State:
    """What the server holds."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.label = "default"
        self.paused = self.updating = False
        self.adapters: dict[str, str] = {}
        self.faults: dict[str, Any] = {}
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.prefixes: dict[tuple[str, ...], torch.Tensor] = {}
        """What was computed of prompts, kept until the server is told to forget it, whatever the weights are."""
        self.lock = threading.Lock()
        self.receiver: Any = None
        self.model: Any = None
        if "--model" in words:
            self.load(words[words.index("--model") + 1])

    def load(self, folder: str) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()

    def meet(self, told: dict[str, Any]) -> None:
        from groupwise_wire import Receiver

        named = ("host", "port", "size", "backend", "seconds")
        host, port, size, backend, seconds = (told[name] for name in named)
        self.receiver = Receiver(host, port, 1, size, backend, seconds)

    def receive(self, told: dict[str, Any]) -> None:
        """Put what is sent into the model; a tensor that it lacks, or that did not come, is an error."""
        lists = told["names"], told["shapes"], told["dtypes"]
        given = dict(self.receiver.tensors(*lists, torch.device("cpu")))
        if not self.faults.get("stale"):
            missing, unknown = self.model.load_state_dict(given, strict=False)
            tied = set(self.model.all_tied_weights_keys)
            assert not unknown, unknown
            assert set(missing) <= tied, missing

    def take(self, fault: str) -> Any:
        """A fault that counts down, or stays when it is true."""
        value = self.faults.get(fault)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            self.faults[fault] = value - 1
        return value


state: State
"""Of the process that serves."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def say(self, answer: Any, status: int = 200) -> None:
        data = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self) -> Any:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        return json.loads(data) if data else {}

    def do_GET(self) -> None:
        if self.path == "/health":
            self.say(None)
        elif self.path == "/weight_info":
            self.say({"weight_version": state.label})
        elif self.path == "/get_world_size":
            self.say({"world_size": 1})
        elif self.path == "/v1/models":
            self.say({"data": [{"id": name} for name in ("base", *state.adapters)]})
        elif self.path == "/test":
            self.say({"asked": state.asked, "paths": state.paths, "words": state.words, "pid": os.getpid()})
        else:
            self.say({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        body = self.body()
        with state.lock:
            self.answer(self.path.split("?")[0], body)

    def answer(self, path: str, body: Any) -> None:
        if path == "/test":
            state.faults = body
            state.asked, state.paths = [], []
            self.say({})
            return
        state.paths.append(path)
        if state.faults.get("missing") == path:
            self.say({"detail": "Not Found"}, 404)
        elif path == "/collective_rpc":
            if state.faults.get("plain"):  # vLLM without our part in its workers
                self.say({"error": {"message": "'Worker' object has no attribute"}}, 500)
            else:
                self.say({"results": [["folder", "gloo"]]})
        elif path == "/init_weight_transfer_engine":
            state.meet(body["init_info"])
            self.say({})
        elif path == "/pause":
            state.paused = True
            self.say({"status": "paused"})
        elif path == "/resume":
            state.paused = False
            self.say({"status": "resumed"})
        elif path == "/start_weight_update":
            state.updating = True
            self.say({})
        elif path == "/update_weights":
            if state.take("busy_updates"):
                self.say({"error": {"message": "a worker is busy"}}, 500)
                return
            assert state.updating
            if state.take("dies_on_update"):
                os._exit(9)
            if "folder" not in body["update_info"]:
                state.receive(body["update_info"])
            elif not state.faults.get("stale"):
                state.load(body["update_info"]["folder"])
            self.say({})
        elif path == "/finish_weight_update":
            state.updating = False
            if not state.faults.get("stale"):
                state.label = body["weight_version"]
            self.say({})
        elif path == "/v1/load_lora_adapter":
            from peft import PeftModel

            state.adapters[body["lora_name"]] = body["lora_path"]
            base = state.model.unload() if isinstance(state.model, PeftModel) else state.model
            state.model = PeftModel.from_pretrained(base, body["lora_path"]).eval()
            self.say(None)
        elif path == "/v1/unload_lora_adapter":
            state.adapters.pop(body["lora_name"], None)
            self.say(None)
        elif path == "/reset_prefix_cache":
            state.prefixes.clear()
            self.say({"success": True})
        elif path == "/inference/v1/generate":
            self.generate(body)
        else:
            self.say({"detail": "Not Found"}, 404)

    def generate(self, body: Any) -> None:
        state.asked.append(body)
        if state.take("busy"):
            self.say({"error": {"message": "overloaded"}}, 503)
        elif state.take("refuse"):
            self.say({"error": {"message": "n must be at most 2", "code": 400}}, 400)
        elif state.take("die"):
            os._exit(9)
        elif body.get("model") not in (None, "base", *state.adapters):
            self.say({"error": {"message": f"The model `{body['model']}` does not exist."}}, 404)
        else:
            assert not state.paused
            if state.take("others"):
                state.label = "of-somebody-else"
            asked = body["token_ids"], body["sampling_params"]
            self.say({"choices": sample(*asked, model=body.get("model", "base"))})


def sample(prompt_ids: list[int], params: dict[str, Any], *, model: str) -> list[dict[str, Any]]:
    """As vLLM does: the seed of each response is the request's plus its index; log-probs after truncation.

    What a prompt gave is kept by the adapter's name, as vLLM keeps keys and values.
    """
    n = params["n"]
    greedy = params["temperature"] == 0
    assert not (greedy and n > 1), "n must be 1 when using greedy sampling"
    streams = [torch.Generator().manual_seed(params.get("seed", 0) + i) for i in range(n)]
    warpers = LogitsProcessorList()
    if not greedy:
        warpers += [TopKLogitsWarper(params["top_k"])] if params.get("top_k") else []
        warpers += [TopPLogitsWarper(params["top_p"])] if params.get("top_p", 1.0) < 1 else []
        warpers += [MinPLogitsWarper(params["min_p"])] if params.get("min_p") else []
    rows = torch.tensor([prompt_ids] * n)
    ids: list[list[int]] = [[] for _ in range(n)]
    logprobs: list[list[float]] = [[] for _ in range(n)]
    top: list[list[Any]] = [[] for _ in range(n)]
    ended = [False] * n
    for step in range(params["max_tokens"]):
        with torch.no_grad():
            logits = state.model(input_ids=rows, use_cache=False).logits[:, -1].float()
        if step == 0:
            known = state.prefixes.setdefault((model, *map(str, prompt_ids)), logits[:1])
            logits = known.expand(n, -1)
        scaled = warpers(rows, logits / (1.0 if greedy else params["temperature"]))
        told = logits.log_softmax(-1) if state.faults.get("raw") else scaled.log_softmax(-1)
        if state.faults.get("not_finite"):
            told = torch.full_like(told, -9999.0)
        drawn = []
        for i in range(n):
            one = scaled[i].softmax(-1)
            token = int(one.argmax()) if greedy else int(torch.multinomial(one, 1, generator=streams[i]))
            drawn.append(token)
            if not ended[i]:
                ids[i].append(token)
                logprobs[i].append(float(told[i, token]))
                values, tokens = told[i].topk(params["logprobs"])
                listed = [(token, told[i, token]), *zip(tokens.tolist(), values.tolist(), strict=True)]
                top[i].append([{"token_id": t, "logprob": float(p)} for t, p in dict(listed).items()])
                ended[i] = token in params.get("stop_token_ids", ())
        rows = torch.cat([rows, torch.tensor(drawn)[:, None]], dim=1)
        if all(ended):
            break
    choices = [
        {
            "index": i,
            "finish_reason": "stop" if ended[i] else "length",
            "token_ids": ids[i],
            "logprobs": {
                "content": [
                    {"token_id": t, "logprob": p, "top_logprobs": others}
                    for t, p, others in zip(ids[i], logprobs[i], top[i], strict=True)
                ]
            },
            "weight_versions": [{"version": state.label, "start": 0, "end": len(ids[i])}],
        }
        for i in range(n)
    ]
    if state.take("aborted"):
        choices[0]["finish_reason"] = "abort"
    if state.faults.get("silent"):
        choices[0]["weight_versions"] = None
    if state.take("mixed"):
        choices[-1]["weight_versions"].insert(0, {"version": "before", "start": 0, "end": 1})
    if state.faults.get("too_few"):
        choices.pop()
    return choices[::-1]  # in no particular order


def serve(words: list[str]) -> None:
    """Answer at the port that the words name, in a process of its own, until that is killed."""
    global state
    torch.set_num_threads(1)
    sys.path.insert(0, str(INSIDE))
    state = State(words)
    ThreadingHTTPServer(("127.0.0.1", int(words[words.index("--port") + 1])), Handler).serve_forever()
