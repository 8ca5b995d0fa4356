"""Lists of words, written as text."""


def listed(words: str) -> list[str]:
    """The words of a text, in order."""
    return words.split()


def vocabulary(words: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(listed(words))
