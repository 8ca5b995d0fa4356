"""What we want: one short sentence about the word of the row."""

import re


def one_sentence(completions, word, *, words: int = 12):
    """1 for one brief sentence that names the word once, 0.5 where it is long, 0.1 for naming the word in another form.

    Nothing without the word, and nothing for a list, which would name it by chance. The form that is not asked for is
    worth little, since copying the prompt earns that too.

    `word` is a column of the data; `words` is a setting, given in config.yaml.
    """
    rewards = []
    for completion, wanted in zip(completions, word, strict=True):
        text = completion[0]["content"].strip()
        said = re.findall(r"[a-z]+", text.lower())
        listed = text.count(",") + said.count("or") > 1
        if said.count(wanted) != 1 or len(set(said)) < 4 or listed:
            rewards.append(0.0)
            continue
        sentence = len(re.findall(r"[.!?]", text)) == 1 and text[-1] in ".!?" and "\n" not in text
        rewards.append(0.1 if not sentence else 1.0 if len(said) <= words else 0.5)
    return rewards
