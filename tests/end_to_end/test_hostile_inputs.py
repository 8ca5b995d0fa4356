"""Nothing that is read is run: no configuration, data, model or checkpoint; nothing outside a run folder is touched; no
secret is written."""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from groupwise.checkpoint.manifest import read_manifest, write_manifest
from groupwise.checkpoint.save import saved_checkpoints
from groupwise.cli.main import run
from groupwise.model.tiny import write_tiny
from groupwise.records.rollout_file import read_rollouts

CODE = "import pathlib; pathlib.Path('ran.txt').write_text('x')"
CONFIGS = {
    "a Python object": 'model: !!python/object/apply:builtins.exec ["{code}"]\n',
    "a Python name": "model: !!python/name:os.system\n",
    "an expression": "model: tiny\ntraining: {{steps: \"__import__('os').system('touch ran.txt')\"}}\n",
    "a template": "model: tiny\nprompts: {{train: \"{{{{ ''.__class__.__mro__ }}}}.jsonl\"}}\nrewards: [numeric]\n",
    "a shell": 'model: "$(touch ran.txt)"\nprompts: {{train: train.jsonl}}\nrewards: [numeric]\n',
}
RUN = (
    "model: tiny\nprompts: {train: train.jsonl}\nrewards: [numeric]\ntraining: {steps: 1}\n"
    "rollout: {prompts_per_step: 2, group_size: 2, max_new_tokens: 4}\n"
    "run: {dir: run, sinks: [], save_model: false}\n"
)


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return exec, (CODE,)


def project(folder: Path) -> Path:
    prompt, extra = "__import__('os').system('touch ran.txt')", {"__reduce__": CODE}
    rows = [{"prompt": f"{prompt} {i}", "answer": CODE, "extra": extra} for i in range(3)]
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "config.yaml").write_text(RUN)
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return project(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with its model, to be copied."""
    folder = project(tmp_path_factory.mktemp("made"))
    with contextlib.chdir(folder):
        assert train("run.save_model=true") == 0
    return folder / "run"


def train(*words: str) -> int:
    return run(["train", "config.yaml", *words])


def ran(place: Path) -> bool:
    return (place / "ran.txt").exists()


def test_unpickling_would_run_it(place: Path) -> None:
    torch.save(Evil(), place / "evil.pt")
    torch.load(place / "evil.pt", weights_only=False)
    assert ran(place)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_configuration_is_only_read(place: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "config.yaml").write_text(CONFIGS[kind].format(code=CODE))
    assert train() == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not ran(place)


def test_data_is_only_read(place: Path) -> None:
    assert train() == 0
    assert not ran(place)


def test_a_chat_template_reaches_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Templates come with models. This one finds a class that starts programs, unless it may not look."""
    (place / "evil.jinja").write_text(
        "{% for each in ''.__class__.__mro__[1].__subclasses__() %}{% if each.__name__ == 'Popen' %}"
        "{{ each(['touch', 'ran.txt']).wait() }}{% endif %}{% endfor %}{{ messages[0]['content'] }}"
    )
    assert train("model.chat_template=evil.jinja", "prompts.chat=true") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not ran(place)


def with_code(folder: Path, kind: str) -> None:
    """A model folder that brings code for its model or its tokenizer."""
    write_tiny(folder)
    (folder / "own.py").write_text(
        f"import os\nos.chdir({str(folder.parent)!r})\n{CODE}\n"
        "from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own'\n"
        "class OwnModel(LlamaForCausalLM):\n    config_class = OwnConfig\n"
        "class OwnTokenizer(PreTrainedTokenizerFast):\n    pass\n"
    )
    name, own = {
        "model": (
            "config.json",
            {
                "model_type": "own",
                "architectures": ["OwnModel"],
                "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"},
            },
        ),
        "tokenizer": (
            "tokenizer_config.json",
            {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": [None, "own.OwnTokenizer"]}},
        ),
    }[kind]
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | own))


@pytest.mark.parametrize("kind", ["model", "tokenizer"])
def test_a_models_code_is_run_only_when_that_is_set(
    place: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(place / "modules"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with_code(place / "model", kind)
    trusted = train("model.name=./model")
    assert not ran(place)
    if kind == "model":  # for a tokenizer transformers knows a class that does as well
        assert trusted == 2
    if trusted:
        said = capsys.readouterr().err
        assert len(said.splitlines()) == 1
        assert "model.trust_remote_code=true if you trust it" in said
    assert train("model.name=./model", "model.trust_remote_code=true", "run.overwrite=true") == 0
    assert ran(place)


def test_a_reward_models_code_is_run_only_when_that_is_set(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_code(place / "judge", "model")
    path = place / "judge" / "config.json"
    path.write_text(
        json.dumps(
            json.loads(path.read_text())
            | {
                "architectures": ["OwnForSequenceClassification"],
                "auto_map": {
                    "AutoConfig": "own.OwnConfig",
                    "AutoModelForSequenceClassification": "own.OwnModel",
                },
            }
        )
    )
    assert train("rewards=[{name: reward_model, settings: {model: ./judge}}]") == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "trust_remote_code: true among the settings" in said
    assert not ran(place)


def test_pickled_weights_of_a_model_are_not_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_tiny(place / "model")
    weights: dict[str, Any] = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({**weights, "evil": Evil()}, folder / "pytorch_model.bin")
    assert train("model.name=./model") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not ran(place)


def test_a_pickled_adapter_is_not_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("lora.rank=2", "run.save_model=true") == 0
    adapter = place / "run" / "model" / "adapter"
    weights: dict[str, Any] = load_file(adapter / "adapter_model.safetensors")
    (adapter / "adapter_model.safetensors").unlink()
    torch.save({**weights, "evil": Evil()}, adapter / "adapter_model.bin")
    shutil.move(adapter, place / "adapter")
    capsys.readouterr()
    assert train("lora.adapter=adapter", "run.overwrite=true") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not ran(place)


def test_a_checkpoint_with_code_in_it_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train() == 0
    for position, folder in saved_checkpoints(place / "run" / "checkpoints"):
        (folder / "manifest.json").unlink()
        torch.save({"keeper": Evil()}, folder / "state.pt")
        write_manifest(folder, version="0", metric=None, healthy=True, position=position)
        read_manifest(folder)
    capsys.readouterr()
    assert run(["train", "--resume", "run"]) == 2
    assert "state.pt cannot be read" in capsys.readouterr().err
    assert not ran(place)


def test_no_secret_reaches_what_a_run_writes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what the environment holds, not what a reward says when it fails, not what the starting command held."""
    secrets = {
        "HF_TOKEN": "hf_very_secret_one",
        "JUDGE_KEY": "very-secret-two",
        "WANDB_API_KEY": "very-secret-three",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["mine.py", f"--token={secrets['HF_TOKEN']}"])
    (place / "mine.py").write_text(
        "import os\ndef scored(completions, prompts):\n"
        "    if not any(prompt.endswith('0') for prompt in prompts):\n        return [0.0] * len(completions)\n"
        "    raise OSError('401 for https://host/?key=' + os.environ['JUDGE_KEY'] + os.environ['WANDB_API_KEY'])\n"
    )
    rewards = "rewards=[numeric, {name: mine.py:scored, on_failure: drop}]"
    assert train(rewards, "rollout.prompts_per_step=3", "run.sinks=[tensorboard]") == 0
    groups = read_rollouts(place / "run" / "rollouts" / "step-000001.parquet")
    failures = [verdict.failure for entry in groups for verdict in entry.group.verdicts_G if verdict.failure]
    assert "401 for https://host/?key=[key]" in failures[0]
    assert "[HF_TOKEN]" in (place / "run" / "manifest.json").read_text()
    for path in (place / "run").rglob("*"):
        if path.is_file():
            assert not any(value.encode() in path.read_bytes() for value in secrets.values()), path


def test_a_configuration_with_a_key_in_it_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = "sk-abcdefghijklmnop1234"
    assert train(f"rewards=[{{name: http, settings: {{url: http://localhost:1, extra: {{k: {key}}}}}}}]") == 2
    said = capsys.readouterr()
    assert "rewards[0].settings.extra.k looks like a key or a password" in said.err
    assert key not in said.out + said.err
    assert not (place / "run").exists()


@pytest.mark.parametrize("name", ["../../train.jsonl", "/etc/passwd", "step-000001/../../..", ".."])
def test_a_checkpoints_name_does_not_lead_out(
    made: Path, place: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made, place / "run")
    assert run(["train", "--resume", "run", "--checkpoint", name]) == 2
    assert "there is no checkpoint" in capsys.readouterr().err


LINKS = [
    "metrics.jsonl",
    "health.jsonl",
    "manifest.json",
    "config.yaml",
    ".lock",
    "rollouts",
    "samples",
    "checkpoints",
    "events",
    "model",
    "rollouts/step-000009.parquet",
    "checkpoints/step-000009",
]


@pytest.mark.parametrize("name", LINKS)
def test_links_that_lead_out_of_a_run_folder_are_refused(
    made: Path, place: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made, place / "run")
    link, outside = place / "run" / name, place / "outside"
    outside.mkdir()
    (outside / "step-000009.parquet").write_text("mine")
    (outside / "step-000009").mkdir()
    for other in ("model.safetensors", "events.out.tfevents.1", "step-000009/state.pt"):
        (outside / other).write_text("mine")
    target = outside / link.name if "/" in name else outside
    if link.exists() and not link.is_dir():
        target = outside / link.name
        shutil.copy(link, target)
    if link.is_dir():
        shutil.rmtree(link)
    else:
        link.unlink(missing_ok=True)
    link.symlink_to(target)
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    for words in (
        ["train", "--resume", "run", "training.steps=2"],
        ["train", "config.yaml", "run.overwrite=true"],
        ["replay", "run", "--step", "1"],
        ["health", "run"],
    ):
        capsys.readouterr()
        assert run(words) == 2, words
        said = capsys.readouterr().err
        assert f"{name} is a link that leads out of the run folder" in said, words
        assert len(said.splitlines()) == 1
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before
    assert os.path.islink(link)


def test_links_inside_and_to_the_whole_folder_are_welcome(place: Path) -> None:
    (place / "disk").mkdir()
    (place / "run").symlink_to(place / "disk")
    assert train() == 0
    (place / "run" / "checkpoints" / "best").symlink_to("step-000001")
    (place / "run" / "notes").symlink_to(place)  # not a name of ours
    assert run(["train", "--resume", "run", "training.steps=2"]) == 0
    assert (place / "disk" / "checkpoints" / "step-000002").is_dir()
