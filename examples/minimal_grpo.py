"""GRPO, the whole algorithm, in one file: torch and transformers, nothing else.

    python examples/minimal_grpo.py                      # a tiny untrained model learns to write digits, no download
    python examples/minimal_grpo.py --model FOLDER_OR_ID --learning-rate 1e-5 --max-new-tokens 64

One step: sample a group of responses per prompt, score them, turn scores into advantages inside each group, and update
the policy with a clipped objective and a leash to the model that training began with. The reward is `reward` below; the
prompts are `PROMPTS`. The same mathematics with its other published forms is in `groupwise.objective`, and a test holds
the two equal on the same rollouts, loss and gradient.

Letters at the end of names are axes: P prompts, G responses per prompt, N = P x G, T response tokens, V vocabulary.
"""

import argparse
import copy

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, ByT5Tokenizer, LlamaConfig, LlamaForCausalLM

PROMPTS = ["Name a number.", "What is two plus two?", "How old are you?", "When was that?", "Count to five."]


def reward(prompt: str, response: str) -> float:
    """The share of digits among what was written: anything that gives a number will do."""
    return sum(c.isdigit() for c in response) / max(len(response), 1)


# ---------------------------------------------------------------------------------------------- the mathematics


def group_advantages(rewards_PG: Tensor, eps: float = 1e-4) -> Tensor:
    """(r - mean) / (std + eps) over the responses of one prompt; 0 where they all earned the same."""
    mean_P1 = rewards_PG.mean(1, keepdim=True)
    std_P1 = rewards_PG.std(1, keepdim=True)  # divides by G - 1
    spread_P1 = rewards_PG.amax(1, keepdim=True) - rewards_PG.amin(1, keepdim=True)
    equal_P1 = spread_P1 <= 1e-6 * rewards_PG.abs().amax(1, keepdim=True)
    return ((rewards_PG - mean_P1) / (std_P1 + eps)).masked_fill(equal_P1, 0.0)


def token_logprobs(model, ids_NS: Tensor, attended_NS: Tensor, tokens: int, temperature: float) -> Tensor:
    """Log-prob of each of the last `tokens` tokens of every row, given all before it, shape [N, T]."""
    positions_NS = (attended_NS.cumsum(1) - 1).clamp(min=0)  # padding on the left does not count
    logits_NSV = model(input_ids=ids_NS, attention_mask=attended_NS, position_ids=positions_NS).logits
    predicting_NTV = logits_NSV[:, -tokens - 1 : -1] / temperature  # position t predicts token t + 1
    logprobs_NTV = predicting_NTV.log_softmax(-1)
    return logprobs_NTV.gather(2, ids_NS[:, -tokens:, None])[..., 0]


def grpo_loss(
    policy_NT: Tensor,
    old_NT: Tensor,
    reference_NT: Tensor,
    advantages_N: Tensor,
    trained_NT: Tensor,
    *,
    clip: float = 0.2,
    beta: float = 0.04,
) -> Tensor:
    """DeepSeekMath (arXiv 2402.03300), equation 3: the mean over responses of the mean over their tokens.

    Args:
        policy_NT: log-probs under the weights that are trained, with gradient.
        old_NT: log-probs under the weights that sampled.
        reference_NT: log-probs under the weights that training began with.
        advantages_N: one for each response, shared by its tokens.
        trained_NT: True for the tokens of the response, its end included; False behind it.
    """
    ratio_NT = (policy_NT - old_NT).exp()
    advantages_N1 = advantages_N[:, None]
    clipped_NT = ratio_NT.clamp(1 - clip, 1 + clip)
    surrogate_NT = torch.minimum(ratio_NT * advantages_N1, clipped_NT * advantages_N1)
    difference_NT = reference_NT - policy_NT
    kl_NT = difference_NT.exp() - difference_NT - 1  # never negative, 0 where the two agree
    loss_NT = (beta * kl_NT - surrogate_NT).masked_fill(~trained_NT, 0.0)
    return (loss_NT.sum(1) / trained_NT.sum(1)).mean()


# ---------------------------------------------------------------------------------------------- sampling and training


@torch.no_grad()
def sample(model, tokenizer, prompts: list[str], group: int, max_new_tokens: int, temperature: float):
    """`group` responses to each prompt.

    Returns:
        Ids of prompt and response [N, S], which of them are no padding [N, S], which response tokens are trained
        [N, T], and the responses as text, N of them.
    """
    tokenizer.padding_side = "left"  # so that every response starts in the same column
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
    model.eval()
    ids_NS = model.generate(
        **inputs,
        do_sample=True,
        temperature=temperature,
        top_k=0,  # the whole distribution: what is sampled is what is trained
        top_p=1.0,
        num_return_sequences=group,
        max_new_tokens=max_new_tokens,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    start = inputs["input_ids"].shape[1]
    response_NT = ids_NS[:, start:]
    ended_NT = (response_NT == tokenizer.eos_token_id).long()
    trained_NT = ended_NT.cumsum(1) - ended_NT == 0  # up to the first end token, and that one too
    attended_NS = torch.cat([inputs["attention_mask"].repeat_interleave(group, 0), trained_NT.long()], dim=1)
    kept = [ids[mask] for ids, mask in zip(response_NT, trained_NT, strict=True)]
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in kept]
    return ids_NS, attended_NS, trained_NT, texts


def train(model, tokenizer, prompts: list[str], options: argparse.Namespace) -> list[float]:
    """Train in place; gives the mean reward of every step. Dropout stays off, since it would change the policy."""
    reference = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.0)
    curve: list[float] = []
    for step in range(1, options.steps + 1):
        ids_NS, attended_NS, trained_NT, texts = sample(
            model, tokenizer, prompts, options.group, options.max_new_tokens, options.temperature
        )
        asked = [prompt for prompt in prompts for _ in range(options.group)]
        rewards_N = torch.tensor([reward(p, text) for p, text in zip(asked, texts, strict=True)])
        advantages_N = group_advantages(rewards_N.view(-1, options.group)).flatten().to(model.device)

        width = trained_NT.shape[1]
        scored = (ids_NS, attended_NS, width, options.temperature)
        with torch.no_grad():
            old_NT = token_logprobs(model, *scored)
            reference_NT = token_logprobs(reference, *scored)
        for _ in range(options.updates):  # from the second on the ratio leaves 1, and the clip has work to do
            policy_NT = token_logprobs(model, *scored)
            given = (policy_NT, old_NT, reference_NT, advantages_N, trained_NT)
            loss = grpo_loss(*given, clip=options.clip, beta=options.beta)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        curve.append(rewards_N.mean().item())
        print(f"step {step:>3}  reward {curve[-1]:.3f}  loss {loss.item():+.4f}  {texts[0][:40]!r}")
    return curve


def load(name: str | None):
    """A model and its tokenizer; without a name, a tiny model of random weights that reads and writes bytes."""
    if name is None:
        tokenizer = ByT5Tokenizer()
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            bos_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        return LlamaForCausalLM(config), tokenizer
    tokenizer = AutoTokenizer.from_pretrained(name)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32), tokenizer


def main(argv: list[str] | None = None) -> list[float]:
    """Read the options, train, and give the mean reward of every step."""
    parser = argparse.ArgumentParser(description="GRPO in one file.")
    parser.add_argument(
        "--model", help="a Hugging Face folder or hub id; a tiny model of random weights by default"
    )
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--group", type=int, default=16, help="responses per prompt")
    parser.add_argument("--max-new-tokens", type=int, default=12)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--learning-rate", type=float, default=5e-3)
    parser.add_argument("--updates", type=int, default=1, help="passes over each batch; 1 is on-policy")
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--beta", type=float, default=0.04, help="weight of the KL leash")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)
    model, tokenizer = load(options.model)
    prompts = PROMPTS
    if tokenizer.chat_template:
        turns = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
        prompts = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    return train(model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer, prompts, options)


if __name__ == "__main__":
    main()
