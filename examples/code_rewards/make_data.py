"""Writes train.jsonl and held_out.jsonl, small functions to write with tests for each, and solutions.jsonl.

python make_data.py
"""

import json
from pathlib import Path

# name and arguments, what it does, an expression or body that does it, and calls with their results.
TASKS = [
    (
        "add(a, b)",
        "returns the sum of two numbers",
        "a + b",
        ["add(2, 3) == 5", "add(-1, 1) == 0", "add(0.5, 0.25) == 0.75"],
    ),
    ("square(n)", "returns n squared", "n * n", ["square(3) == 9", "square(-2) == 4", "square(0) == 0"]),
    (
        "double_all(numbers)",
        "returns a list with each number doubled",
        "[2 * n for n in numbers]",
        ["double_all([1, 2]) == [2, 4]", "double_all([]) == []"],
    ),
    (
        "is_even(n)",
        "says whether n is even",
        "n % 2 == 0",
        ["is_even(4) == True", "is_even(7) == False", "is_even(0) == True"],
    ),
    (
        "largest(numbers)",
        "returns the largest number of a list that is not empty",
        "max(numbers)",
        ["largest([1, 5, 3]) == 5", "largest([-2]) == -2"],
    ),
    (
        "reverse(text)",
        "returns the text backwards",
        "text[::-1]",
        ["reverse('abc') == 'cba'", "reverse('') == ''"],
    ),
    (
        "count_vowels(text)",
        "counts the letters a, e, i, o, u in a lower-case text",
        "sum(c in 'aeiou' for c in text)",
        ["count_vowels('banana') == 3", "count_vowels('xyz') == 0"],
    ),
    (
        "first_word(text)",
        "returns the first word of a text with at least one word",
        "text.split()[0]",
        ["first_word('hello there') == 'hello'", "first_word(' a b') == 'a'"],
    ),
    (
        "absolute(n)",
        "returns n without its sign",
        "n if n >= 0 else -n",
        ["absolute(-4) == 4", "absolute(4) == 4", "absolute(0) == 0"],
    ),
    (
        "total(numbers)",
        "returns the sum of a list of numbers",
        "sum(numbers)",
        ["total([1, 2, 3]) == 6", "total([]) == 0"],
    ),
    (
        "is_palindrome(text)",
        "says whether a text reads the same backwards",
        "text == text[::-1]",
        ["is_palindrome('anna') == True", "is_palindrome('ab') == False", "is_palindrome('') == True"],
    ),
    (
        "factorial(n)",
        "returns 1 * 2 * ... * n, and 1 for 0",
        "1 if n == 0 else n * factorial(n - 1)",
        ["factorial(5) == 120", "factorial(0) == 1"],
    ),
    (
        "unique(items)",
        "returns the items of a list without repeats, in order",
        "list(dict.fromkeys(items))",
        ["unique([1, 2, 1]) == [1, 2]", "unique([]) == []"],
    ),
    (
        "last(items)",
        "returns the last item of a list, or None of an empty one",
        "items[-1] if items else None",
        ["last([1, 2]) == 2", "last([]) is None"],
    ),
    (
        "join_words(words)",
        "joins words with single spaces",
        "' '.join(words)",
        ["join_words(['a', 'b']) == 'a b'", "join_words([]) == ''"],
    ),
    (
        "count(items, item)",
        "counts how often an item is in a list",
        "items.count(item)",
        ["count([1, 2, 1], 1) == 2", "count([], 1) == 0"],
    ),
    (
        "middle(a, b, c)",
        "returns the middle one of three numbers",
        "sorted([a, b, c])[1]",
        ["middle(3, 1, 2) == 2", "middle(5, 5, 1) == 5"],
    ),
    (
        "to_celsius(f)",
        "turns degrees Fahrenheit into degrees Celsius",
        "(f - 32) * 5 / 9",
        ["to_celsius(32) == 0", "to_celsius(212) == 100"],
    ),
    (
        "is_leap(year)",
        "says whether a year is a leap year",
        "year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
        ["is_leap(2024) == True", "is_leap(1900) == False", "is_leap(2000) == True"],
    ),
    (
        "flatten(rows)",
        "turns a list of lists into one list",
        "[item for row in rows for item in row]",
        ["flatten([[1], [2, 3]]) == [1, 2, 3]", "flatten([]) == []"],
    ),
    (
        "initials(name)",
        "returns the first letters of the words of a name",
        "''.join(word[0] for word in name.split())",
        ["initials('Ada Lovelace') == 'AL'", "initials('x') == 'x'"],
    ),
    (
        "clamp(n, low, high)",
        "returns n, or the nearer end where it lies outside low to high",
        "min(max(n, low), high)",
        ["clamp(5, 0, 3) == 3", "clamp(-1, 0, 3) == 0", "clamp(2, 0, 3) == 2"],
    ),
    (
        "swap(pair)",
        "returns a tuple of two with its items exchanged",
        "(pair[1], pair[0])",
        ["swap((1, 2)) == (2, 1)", "swap(('a', 'b')) == ('b', 'a')"],
    ),
    (
        "digits(n)",
        "returns the sum of the digits of a whole number above 0",
        "sum(int(c) for c in str(n))",
        ["digits(123) == 6", "digits(9) == 9"],
    ),
]
HELD_OUT = 4


def rows() -> list[dict[str, object]]:
    """One row per task, with a solution as a completion."""
    made: list[dict[str, object]] = []
    for signature, does, result, checks in TASKS:
        name = signature.partition("(")[0]
        solution = f"def {signature}:\n    return {result}\n"
        asked = f"Write a Python function `{signature}` that {does}. Answer with one block of Python code."
        tests = [f"assert {check}" for check in checks]
        made.append(
            {"prompt": asked, "tests": tests, "entry_point": name, "completion": f"```python\n{solution}```"}
        )
    return made


def main() -> None:
    """Write the three files."""
    solved = rows()
    asked = [{key: value for key, value in row.items() if key != "completion"} for row in solved]
    for name, part in (("train", asked[:-HELD_OUT]), ("held_out", asked[-HELD_OUT:]), ("solutions", solved)):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))


if __name__ == "__main__":
    main()
