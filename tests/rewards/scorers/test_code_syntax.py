import pytest

from groupwise.errors import SandboxError
from groupwise.rewards.scorers.code_syntax import code_syntax


def test_a_program_scores_1_and_anything_else_0() -> None:
    completions = [
        "```python\nx = 1\n```",
        "```python\nx = \n```",
        "I cannot.",
        "",
        "x = 1",
        "```js\nlet a\n```",
    ]
    assert code_syntax(completions) == [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    assert code_syntax([[{"role": "assistant", "content": "```\nprint(1)\n```"}]]) == [1.0]
    assert code_syntax([]) == []


def test_an_interpreter_that_is_none_is_refused() -> None:
    with pytest.raises(SandboxError, match="name its file"):
        code_syntax(["x = 1"], python="/nowhere")
