import pytest

from groupwise.rewards.sandbox.extract import extract_code

CODE = "def f():\n    return 1\n"


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        (f"```python\n{CODE}```", CODE),
        (f"```\n{CODE}```", CODE),
        (f"Here:\n\n```py\n{CODE}```\nThat is all.", CODE),
        (f"``` Python3.11\n{CODE}```", CODE),
        (f"~~~python\n{CODE}~~~", CODE),
        (f"````python\n{CODE}```\n````", f"{CODE}```\n"),  # a shorter fence inside closes nothing
        (f"```python\nx = 1\n```\nBetter:\n```python\n{CODE}```", CODE),  # the last
        (f"```python\n{CODE}```\nIt prints\n```\n1\n```", CODE),  # a marked one before one without a mark
        (f"```python\n{CODE}```\n```bash\npython f.py\n```", CODE),
        ("```javascript\nlet a = 1\n```", ""),  # of another language
        (f"<think>```python\nx = 1\n```</think>```python\n{CODE}```", CODE),
        (f"<think>```python\n{CODE}```", ""),  # reasoning that the length cut off
        (f"[THINK]no[/THINK]```python\n{CODE}```", CODE),
        ("```python\ns.split('</think>')\n```", "s.split('</think>')\n"),  # only mentioned
        (f"<think>no</think><answer>{CODE}</answer>", CODE.rstrip("\n")),
        (f"<answer>\n```python\n{CODE}```\n</answer> trailing ```python\nx\n```", CODE),
        (f"<answer></answer>```python\n{CODE}```", CODE),  # an empty answer is none
        (f"```python\n{CODE}", CODE),  # never closed
        (f"```python\n{CODE}```\nand\n```python\ndef g(", CODE),  # a closed one before one that is cut off
        ("```python\nreturn_this```", "return_this\n"),  # closed at the end of its last line
        (
            f"- step:\n  ```python\n  {CODE.replace(chr(10) + '    ', chr(10) + '      ')}  ```",
            CODE,
        ),  # in a list
        ("> ```python\n> x = 1\n> ```", "x = 1\n"),  # in a quotation
        ("```python\r\nx = 1\r\n```", "x = 1\n"),
        (CODE, CODE.rstrip("\n")),
        ("The answer is 4.", "The answer is 4."),
        (
            "```python\ndef f():\n    '''Use ``` to fence'''\n    return 1\n```",
            "def f():\n    '''Use ``` to fence'''\n    return 1\n",
        ),
        ("", ""),
        (f"Answer:```python\n{CODE}```", CODE),  # glued to what stands before it
        (f"Answer: ```python\n{CODE}```", CODE),
        ("```", "\n"),
        ("```python\n```", "\n"),
        ("```{.python .numberLines}\nx = 1\n```", "x = 1\n"),
        ("```pythonic\nx = 1\n```", ""),
    ],
)
def test_the_program_of_a_completion(completion: str, code: str) -> None:
    assert extract_code(completion) == code


@pytest.mark.timeout(30)  # milliseconds; what starts again at each fence would take minutes
def test_hostile_text_takes_little_time() -> None:
    for text in (
        "```\n" * 50_000,
        "`" * 200_000,
        "```python\n" * 50_000,
        "> " * 100_000,
        "<answer>" * 50_000,
        " " * 200_000,
    ):
        assert isinstance(extract_code(text), str)
