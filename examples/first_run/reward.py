"""What we want: a right sum, in a reply that ends by itself."""

import re


def right_and_brief(completions, stop_reasons, answer, **columns):
    """1 for a right reply that ends, 0.4 for a right one cut off, 0.1 for a wrong one that ends, else 0."""
    rewards = []
    for completion, stop_reason, expected in zip(completions, stop_reasons, answer, strict=True):
        numbers = re.findall(r"\d+", completion[0]["content"])
        right = bool(numbers) and numbers[-1] == expected
        ended = stop_reason == "stop"
        rewards.append((1.0 if ended else 0.4) if right else (0.1 if ended else 0.0))
    return rewards
