"""What is loaded when something of ours is imported, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import groupwise

SOURCE = Path(groupwise.__file__).parent
HEAVY = ("torch", "transformers", "peft", "safetensors", "gguf", "datasets", "tensorboard")


def light_modules() -> list[str]:
    names = ["groupwise", "groupwise.errors", "groupwise.registry"]
    for room in ("config", "records", "objective", "rewards/scorers", "health/checks"):
        for path in sorted((SOURCE / room).rglob("*.py")):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            names.append(".".join(["groupwise", *parts]).removesuffix(".__init__"))
    return names


def loaded_by(code: str) -> set[str]:
    check = f"{code}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_everything_that_is_read_for_names_and_settings_loads_nothing_heavy() -> None:
    assert loaded_by("\n".join(f"import {name}" for name in light_modules())) == set()


def test_a_configuration_is_checked_without_anything_heavy() -> None:
    code = "import groupwise.config\ngroupwise.config.load({'objective': 'grpo', 'training': {'steps': 3}})"
    assert loaded_by(code) == set()


def test_a_run_starts_without_what_only_some_runs_need() -> None:
    check = (
        "import sys\nimport groupwise.training.loop, groupwise.training.setup, groupwise.training.inputs\n"
        "print(*[name for name in ('peft', 'bitsandbytes', 'datasets', 'torch.utils.tensorboard') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_check_itself_can_fail() -> None:
    assert loaded_by("import safetensors") == {"safetensors"}
