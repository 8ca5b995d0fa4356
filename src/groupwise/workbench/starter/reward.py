"""A reward of your own. Rename it, change it, and name it in config.yaml."""


def brief(completions, stop_reasons, **columns):
    """1 for a reply that ends by itself within the limit, 0 for one that is cut off.

    A reward gets lists with one entry per rollout, and returns a number (or None for "does not apply") for each.
    `completions` are lists of chat messages here, since prompts.chat is true: the text is completion[0]["content"].
    The data's columns come by name: add `answer` to the arguments to read it.
    """
    return [1.0 if reason == "stop" else 0.0 for reason in stop_reasons]
