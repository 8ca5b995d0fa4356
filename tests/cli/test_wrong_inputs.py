"""Each wrong input ends with exit code 2 and one sentence that names the place and the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.conftest import CONFIG, Said

ROW = '{"prompt": "2 + 2 =", "answer": "4"}\n'


@dataclass(frozen=True, kw_only=True)
class Case:
    """Words after `groupwise`, files to write first, and what the sentence must hold."""

    words: str
    says: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)


def config(**changed: str) -> dict[str, str]:
    """config.yaml with top-level lines replaced (or added)."""
    lines = dict(line.split(": ", 1) for line in CONFIG.splitlines())
    return {"config.yaml": "".join(f"{key}: {value}\n" for key, value in {**lines, **changed}.items())}


def reward(body: str) -> dict[str, str]:
    return {"reward.py": f"def letters(completions, **columns):\n    {body}\n"}


CASES = {
    # the configuration file
    "missing file": Case(words="train nowhere.yaml", says=("nowhere.yaml", "groupwise init")),
    "a folder for a file": Case(words="check .", says=("folder", "configuration file")),
    "empty file": Case(
        words="check config.yaml", files={"config.yaml": ""}, says=("config.yaml is empty", "init")
    ),
    "not YAML": Case(
        words="check config.yaml", files={"config.yaml": "a: [1\nb: 2"}, says=("config.yaml", "line 2")
    ),
    "key given twice": Case(
        words="check config.yaml",
        files={"config.yaml": CONFIG + "model: tiny\n"},
        says=("line 8", "'model' is given twice", "keep one"),
    ),
    "unknown key": Case(
        words="train config.yaml",
        files=config(training="{lerning_rate: 1e-6}"),
        says=("config.yaml", "training.lerning_rate", "did you mean training.learning_rate?"),
    ),
    "unknown key deep down": Case(
        words="check config.yaml", files=config(lora="{rnk: 8}"), says=("lora.rnk", "lora.rank")
    ),
    "unknown key in the words": Case(
        words="train config.yaml training.stepz=3", says=("command line", "training.stepz", "training.steps?")
    ),
    "a name of TRL": Case(
        words="check config.yaml",
        files=config(num_generations="4"),
        says=("num_generations", "rollout.group_size?"),
    ),
    "a misspelled name of TRL": Case(
        words="check config.yaml",
        files=config(num_generation="4"),
        says=("num_generation", "rollout.group_size?"),
    ),
    "a batch size of TRL": Case(
        words="check config.yaml",
        files=config(per_device_train_batch_size="4"),
        says=("rollout.prompts_per_step?", "counts prompts"),
    ),
    "steps of TRL": Case(words="check config.yaml", files=config(max_steps="4"), says=("training.steps?",)),
    "word without equals sign": Case(
        words="train config.yaml learning_rate", says=("key=value", "training.learning_rate=")
    ),
    "option for a setting": Case(
        words="train config.yaml --learning_rate 1",
        says=("--learning_rate", "key=value", "training.learning_rate="),
    ),
    # values
    "no spread with one rollout": Case(
        words="train config.yaml rollout.group_size=1",
        says=("rollout.group_size is 1", "group_zscore", "at least 2"),
    ),
    "text for a number": Case(
        words="check config.yaml training.learning_rate=fast",
        says=("training.learning_rate", "'fast'", "number"),
    ),
    "steps and epochs": Case(
        words="check config.yaml training.epochs=2", says=("steps or epochs, not both",)
    ),
    "temperature 0": Case(
        words="check config.yaml rollout.temperature=0", says=("rollout.temperature", "should be from 0.001")
    ),
    "top_p over 1": Case(
        words="check config.yaml rollout.top_p=1.5", says=("rollout.top_p", "less than or equal to 1")
    ),
    "clip of 1.5": Case(
        words="check config.yaml objective.surrogate.low=1.5",
        says=("objective.surrogate", "low", "less than 1"),
    ),
    "greedy samples": Case(
        words="check config.yaml evaluate.samples=4",
        says=("evaluate.samples is 4", "evaluate.temperature above 0"),
    ),
    "no such preset": Case(
        words="check config.yaml objective=gropo", says=("'gropo'", "did you mean 'grpo'?")
    ),
    # data
    "no data": Case(words="train config.yaml prompts.train=null", says=("prompts.train", "JSONL")),
    "missing data": Case(
        words="train config.yaml prompts.train=trian.jsonl", says=("trian.jsonl", "did you mean train.jsonl?")
    ),
    "bad JSON on line 7": Case(
        words="train config.yaml",
        files={"train.jsonl": ROW * 6 + '{"prompt": "3 + 3 =", }\n' + ROW},
        says=("train.jsonl line 7", "not JSON", "character"),
    ),
    "not UTF-8": Case(
        words="train config.yaml",
        files={"train.jsonl": ROW + '{"prompt": "caf\udce9"}\n'},
        says=("train.jsonl line 2", "0xe9", "save the file as UTF-8"),
    ),
    "empty prompt": Case(
        words="train config.yaml",
        files={"train.jsonl": ROW + '{"prompt": "  "}\n'},
        says=("train.jsonl line 2", "'prompt'", "is empty"),
    ),
    "no prompt column": Case(
        words="train config.yaml",
        files={"train.jsonl": '{"question": "2 + 2 ="}\n'},
        says=("train.jsonl line 1", "no column 'prompt'", "prompts.columns: {prompt: question}"),
    ),
    "no answer column": Case(
        words="train config.yaml rewards=[numeric]",
        files={"train.jsonl": '{"prompt": "2 + 2 =", "solution": "4"}\n'},
        says=("train.jsonl", "'numeric'", "'answer'", "rewards[0].columns"),
    ),
    "held out is trained on": Case(
        words="train config.yaml prompts.held_out=train.jsonl",
        says=("prompts.train and prompts.held_out",),
    ),
    "prompt over the limit": Case(
        words="train config.yaml prompts.max_prompt_tokens=20",
        files={"train.jsonl": ROW + json.dumps({"prompt": "z" * 300, "answer": "4"}) + "\n"},
        says=("train.jsonl line 2", "300 tokens", "limit of 20", "prompts.too_long"),
    ),
    # rewards
    "no rewards": Case(words="train config.yaml rewards=[]", says=("rewards is empty", "numeric")),
    "no such scorer": Case(
        words="train config.yaml rewards=[numric]", says=("'numric'", "did you mean 'numeric'?")
    ),
    "no such function": Case(
        words="check config.yaml",
        files=config(rewards='["reward.py:leters"]'),
        says=("reward.py", "'leters'", "did you mean 'letters'?"),
    ),
    "no such reward file": Case(
        words="check config.yaml",
        files=config(rewards='["rewad.py:letters"]'),
        says=("rewards[0]", "rewad.py"),
    ),
    "no such module": Case(
        words="check config.yaml",
        files=config(rewards='["no_such_module_x:f"]'),
        says=("no_such_module_x", "file.py"),
    ),
    "reward file that raises": Case(
        words="check config.yaml",
        files={"reward.py": "import math\nmath.sqrt(-1)\n"},
        says=("reward.py", "importing", "ValueError"),
    ),
    "reward of the wrong count": Case(
        words="train config.yaml",
        files=reward("return [1.0]"),
        says=("'letters'", "1 values for 3 rollouts", "one number"),
    ),
    "reward that returns nothing": Case(
        words="check config.yaml", files=reward("pass"), says=("'letters'", "returned nothing", "list")
    ),
    "reward that raises": Case(
        words="train config.yaml",
        files=reward("return [1 / 0 for _ in completions]"),
        says=("'letters'", "ZeroDivisionError", "rewards[0].on_failure"),
    ),
    "reward of NaN": Case(
        words="train config.yaml",
        files=reward("return [float('nan')] * len(completions)"),
        says=("'letters'", "nan", "None is for"),
    ),
    "reward that exits": Case(
        words="check config.yaml",
        files={"reward.py": "import sys\nsys.exit(0)\n"},
        says=("sys.exit(0)", "reward.py line 2", "remove it"),
    ),
    "reward that exits in a worker": Case(
        words="check config.yaml",
        files=config(rewards="[{name: 'reward.py:letters', workers: 1}]") | reward("raise SystemExit(4)"),
        says=("sys.exit(4)", "in a worker process", "reward.py line 2", "remove it"),
    ),
    "labels given twice": Case(
        words="check config.yaml",
        files=config(rewards="[" + ", ".join(["{name: numeric, label: right}"] * 3) + "]"),
        says=("label 'right'", "twice"),
    ),
    "weights of 0": Case(
        words="check config.yaml", files=config(rewards="[{name: numeric, weight: 0}]"), says=("weight", "0")
    ),
    "no such setting of a reward": Case(
        words="check config.yaml",
        files=config(rewards="[{name: numeric, settings: {tolerence: 0.1}}]"),
        says=("rewards[0].settings", "'tolerence'", "did you mean 'tolerance'?"),
    ),
    # model
    "no such model": Case(
        words="train config.yaml model=./tinny", says=("model.name './tinny'", "there is no")
    ),
    "no such model by check": Case(words="check config.yaml model=./tinny", says=("model.name './tinny'",)),
    "folder without a model": Case(
        words="train config.yaml model=.", says=("no config.json", "right folder")
    ),
    "no such device": Case(
        words="train config.yaml model.device=gpu", says=("model.device", "'gpu'", "cuda")
    ),
    "no such pad token": Case(
        words="train config.yaml model.pad_token=<padd>", says=("model.pad_token", "<padd>", "vocabulary")
    ),
    "no such stop token": Case(
        words="train config.yaml rollout.stop_tokens=[<|im_ende|>]",
        says=("rollout.stop_tokens", "did you mean '<|im_end|>'?"),
    ),
    "responses longer than the context": Case(
        words="train config.yaml rollout.max_new_tokens=600", says=("600", "512", "rollout.max_new_tokens")
    ),
    # places to write
    "run folder not empty": Case(
        words="train config.yaml",
        files={"run/notes.txt": "mine"},
        says=("run.dir run", "not empty", "run.overwrite=true"),
    ),
    "overwriting what is no run": Case(
        words="train config.yaml run.overwrite=true",
        files={"run/notes.txt": "mine"},
        says=("nothing was removed", "choose another run.dir"),
    ),
    "run folder below a file": Case(
        words="train config.yaml run.dir=reward.py/run",
        says=("run.dir", "reward.py is not a directory", "another run.dir"),
    ),
    "run folder that cannot be written": Case(
        words="train config.yaml run.dir=/proc/groupwise/run",
        says=("run.dir /proc/groupwise/run", "another run.dir"),
    ),
    # other verbs
    "no such verb": Case(words="trian config.yaml", says=("'trian'", "did you mean 'train'?")),
    "no argument": Case(words="train", says=("CONFIG", "--help")),
    "no such option": Case(words="eval config.yaml --sample 3", says=("--sample", "did you mean --samples?")),
    "option of the wrong kind": Case(words="smoke --seed many", says=("--seed", "integer", "--help")),
    "no such control": Case(words="smoke --control shuffled", says=("'shuffled'", "shuffled-rewards")),
    "explain nothing": Case(words="explain objective.kl.beta=0", says=("preset", "groupwise explain grpo")),
    "explain an unknown name": Case(words="explain dr_gpro", says=("'dr_gpro'", "did you mean dr_grpo?")),
    "score a missing column": Case(
        words="score numeric rows.jsonl --output out.jsonl",
        files={"rows.jsonl": '{"prompt": "2 + 2 =", "completion": "4", "anwser": "4"}\n'},
        says=("rows.jsonl", "'answer'", "--column answer=anwser"),
    ),
    "score rows without completion": Case(
        words="score reward.py:letters train.jsonl --output out.jsonl",
        says=("train.jsonl row 1", "'completion'"),
    ),
    "score with an unknown setting": Case(
        words="score numeric train.jsonl --output out.jsonl --set tolerence=1", says=("--set", "'tolerance'")
    ),
    "score into a missing folder": Case(
        words="score reward.py:letters rows.jsonl --output no/out.jsonl",
        files={"rows.jsonl": '{"prompt": "a", "completion": "b"}\n'},
        says=("--output no/out.jsonl", "name another file"),
    ),
    "eval without held-out data": Case(
        words="eval config.yaml prompts.held_out=null", says=("prompts.held_out", "--data")
    ),
    "eval of a model folder alone": Case(
        words="eval somewhere --data train.jsonl",
        files={"somewhere/config.json": "{}"},
        says=("rewards is empty", "rewards=[numeric]", "--reference"),
    ),
    "eval of a run that is not there": Case(
        words="eval runs/frist/one", says=("runs/frist/one", "there is no")
    ),
    "eval of a model folder without data": Case(
        words="eval somewhere rewards=[numeric]",
        files={"somewhere/config.json": "{}"},
        says=("prompts.held_out is missing", "--data"),
    ),
    "eval with k that is no number": Case(
        words="eval config.yaml --k 1,four", says=("--k '1,four'", "--k 1,4,16")
    ),
    "eval with k of 0": Case(words="eval config.yaml --k 0", says=("--k '0'", "--k 1,4,16")),
    "eval with fewer samples than k": Case(
        words="eval config.yaml --k 4 --samples 2", says=("evaluate.samples is 2", "pass@4")
    ),
    "eval of pass@4 at temperature 0": Case(
        words="eval config.yaml --k 4 --temperature 0", says=("evaluate.samples is 4", "temperature 0")
    ),
    "an evaluation k above its samples": Case(
        words="check config.yaml evaluate.k=[1,8]", says=("evaluate.k", "pass@8", "evaluate.samples is 1")
    ),
    "k given twice": Case(words="check config.yaml evaluate.k=[1,1]", says=("evaluate.k", "each k once")),
    "a greedy response beside greedy ones": Case(
        words="check config.yaml evaluate.greedy=true",
        says=("evaluate.greedy", "at temperature 0", "remove it"),
    ),
    "an evaluation reward that is not there": Case(
        words="check config.yaml evaluate.rewards=[numerik]", says=("evaluate.rewards[0]", "numeric")
    ),
    "an evaluation reward that is normalised": Case(
        words='check config.yaml evaluate.rewards=[{"name":"exact","normalise":"group"}]',
        says=("evaluate.rewards[0].normalise", "unknown key"),
    ),
    "an evaluation reward of weight 0 behind a gate": Case(
        words='check config.yaml evaluate.rewards=[{"name":"numeric","weight":0,"gate":{"reward":"x"}}]',
        says=("its weight is 0", "gate"),
    ),
    "an evaluation reward whose column is not there": Case(
        words='check config.yaml evaluate.rewards=[{"name":"exact","columns":{"answer":"gold"}}]',
        says=("held_out.jsonl", "'gold'"),
    ),
    "compare without what varies": Case(
        words="compare config.yaml", says=("--vary is missing", "objective=grpo")
    ),
    "compare by what is not measured": Case(
        words="compare config.yaml --vary objective=rloo --metric reward/mean",
        says=("--metric reward/mean is not measured", "eval/pass@1"),
    ),
    "compare an unknown preset": Case(
        words="compare config.yaml --vary objective=grpo,dappo", says=("dappo", "did you mean 'dapo'?")
    ),
    "rate without a second word": Case(words="rate import ratings", says=("FILE",)),
    "rate a file that is not there": Case(
        words="rate export found.json --output sheet", says=("found.json cannot be read",)
    ),
    "rate one model twice": Case(words="rate export run run --output sheet", says=("named twice", "once")),
    "import without an export": Case(
        words="rate import train.jsonl reward.py", says=("key.json", "rate export")
    ),
    "eval of a run without a model": Case(
        words="eval old", files={"old/config.yaml": CONFIG}, says=("old", "no trained model", "--model")
    ),
    "sample without a prompt": Case(words="sample config.yaml", says=("--prompt", "--row")),
    "sample a row that is not there": Case(
        words="sample config.yaml --row 5", says=("--row 5", "rows 0 to 4")
    ),
    "sample without the reward's column": Case(
        words="sample config.yaml --prompt hello rewards=[numeric]",
        says=("'numeric'", "--column answer=VALUE"),
    ),
    "score over its data": Case(
        words="score reward.py:letters train.jsonl --output ./train.jsonl",
        files={"train.jsonl": '{"prompt": "a", "completion": "b"}\n'},
        says=("--output train.jsonl", "which is read here; name another file"),
    ),
    "score over its reward": Case(
        words="score reward.py:letters rows.jsonl --output reward.py",
        files={"rows.jsonl": '{"prompt": "a", "completion": "b"}\n'},
        says=("--output reward.py", "which is read here"),
    ),
    "score into a folder": Case(
        words="score reward.py:letters rows.jsonl --output .",
        files={"rows.jsonl": '{"prompt": "a", "completion": "b"}\n'},
        says=("--output . is a folder; name a file in it",),
    ),
    "score into nothing": Case(
        words="score reward.py:letters rows.jsonl --output ",
        files={"rows.jsonl": '{"prompt": "a", "completion": "b"}\n'},
        says=("is a folder; name a file in it",),
    ),
    "eval over its configuration": Case(
        words="eval config.yaml --output config.yaml", says=("--output config.yaml", "which is read here")
    ),
    "eval over its held-out data": Case(
        words="eval config.yaml --output held_out.jsonl",
        says=("--output held_out.jsonl", "which is read here"),
    ),
    "eval over its reward": Case(
        words="eval config.yaml --output reward.py", says=("--output reward.py", "which is read here")
    ),
    "a row without the reward's column": Case(
        words="check config.yaml rewards=[numeric]",
        files={"train.jsonl": ROW + '{"prompt": "2 + 3 ="}\n'},
        says=("train.jsonl line 2", "'numeric' needs the column 'answer', which other rows have"),
    ),
    "explain of a folder without a run": Case(words="explain .", says=("folder", "configuration file")),
    "init over a file of yours": Case(words="init .", says=("config.yaml already", "choose another folder")),
}


@pytest.mark.parametrize("name", CASES)
def test_one_sentence_and_exit_code_2(name: str, project: Path, groupwise: Callable[..., Said]) -> None:
    case = CASES[name]
    before = {file: (project / file).read_bytes() for file in ("train.jsonl", "reward.py")}
    for file, text in case.files.items():
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).write_text(text, encoding="utf-8", errors="surrogateescape")
        before[file] = (project / file).read_bytes()
    there = {path for path in project.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__"}

    said = groupwise(*case.words.split(" "))

    assert said.code == 2, said
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    assert lines[0].startswith("error: ")
    assert "Traceback" not in said.out + said.err
    assert 20 < len(lines[0]) < 600
    for words in case.says:
        assert words in lines[0]
    # What was there is there, and a run that could not start has left nothing behind.
    assert {file: (project / file).read_bytes() for file in before} == before
    now = {path for path in project.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__"}
    started = {"reward of the wrong count", "reward that raises", "reward of NaN"}
    assert name in started or now == there


def test_there_are_more_than_thirty() -> None:
    assert len(CASES) > 30


@pytest.mark.parametrize(
    "words",
    [
        "check config.yaml",
        "check config.yaml training.learning_rate=1e-6",
        "check config.yaml training.steps=4.0",
        "check config.yaml model.pad_token=null",
    ],
)
def test_right_inputs_are_accepted(words: str, project: Path, groupwise: Callable[..., Said]) -> None:
    said = groupwise(*words.split(" "))
    assert (said.code, said.err) == (0, "")
    assert said.out.endswith("config.yaml is fine\n")


def test_a_number_that_yaml_reads_as_text(project: Path, groupwise: Callable[..., Said]) -> None:
    (project / "config.yaml").write_text(config(training="{steps: 2, learning_rate: 1e-6}")["config.yaml"])
    assert groupwise("check", "config.yaml").code == 0
    assert "learning rate 1e-06" in groupwise("explain", "config.yaml").out
