"""What we want: a right sum, in a reply that ends by itself."""

import re


def right_and_brief(completions, stop_reasons, answer, **columns):
    """1 when the reply's last number is right and it ends by itself, 0.4 when it is right but cut off, else 0."""
    rewards = []
    for completion, stop_reason, expected in zip(completions, stop_reasons, answer, strict=True):
        numbers = re.findall(r"\d+", completion[0]["content"])
        right = bool(numbers) and numbers[-1] == expected
        rewards.append((1.0 if stop_reason == "stop" else 0.4) if right else 0.0)
    return rewards
