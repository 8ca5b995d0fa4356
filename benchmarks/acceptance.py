"""What was promised, and what the last whole run of the tests and the benchmarks say of it.

python -m benchmarks.acceptance REPORT.xml ...   # JUnit reports of `make test`, `make test-long`, `make test-vllm`

Writes docs/results/acceptance.md. `make acceptance` runs the tests and then this. A promise is held when every test
that stands for it passed; what a test cannot say stands in a table that a benchmark wrote, and the page links to it. A
test that was skipped is counted, and no promise is held by skipped tests alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import facts

PAGE = facts.ROOT / "docs" / "results" / "acceptance.md"


@dataclass(frozen=True, slots=True)
class Promise:
    """One thing that was promised."""

    words: str
    """What it is."""
    tests: tuple[str, ...] = ()
    """Files or folders under tests/."""
    tables: tuple[str, ...] = ()
    """Pages that a benchmark wrote, from the root."""
    left: str = ""
    """What no test and no table shows, or what they show that falls short."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test as a JUnit report has it."""

    file: str
    """From the root, with slashes and without `.py`."""
    name: str
    """With its parameters."""
    outcome: str
    """passed, failed or skipped."""


PROMISES: dict[str, tuple[Promise, ...]] = {
    "The main job": (
        Promise(
            "the demo's reward and held-out accuracy rise, three seeds of three",
            (),
            ("docs/results/first_run.md",),
        ),
        Promise(
            "the embedded model learns in six steps, and its report opens", ("end_to_end/test_embedded.py",)
        ),
        Promise(
            "smoke passes on ten seeds, and fails on ten for each control", ("end_to_end/test_smoke.py",)
        ),
        Promise(
            "the configuration is read without torch; the command starts at once",
            ("contracts/test_imports.py", "cli/test_main.py"),
        ),
        Promise(
            "rooms, sizes, registry and docs are as the design has them, and each check fails when broken",
            ("contracts",),
        ),
        Promise(
            "rewards written for TRL work unchanged", ("rewards/test_function.py", "rewards/test_calling.py")
        ),
        Promise(
            "GSM8K as published: right answers score 1, changed ones 0, on every row",
            ("rewards/test_answers.py", "rewards/mathematics"),
        ),
        Promise("wrong inputs give one sentence and exit code 2", ("cli/test_wrong_inputs.py",)),
        Promise(
            "LoRA learns, and leaves its base as it was", ("model/test_lora.py", "end_to_end/test_train.py")
        ),
        Promise("settings far outside what is usual are asked about by name", ("config/test_ranges.py",)),
    ),
    "Fast": (
        Promise(
            "speed and memory against TRL and vLLM, the roofline, what is outside the model",
            (),
            ("benchmarks/RESULTS.md",),
            "floors that are not met, and what was not measured, stand in its first table",
        ),
        Promise(
            "shared prefix, packing, chunks, micro-batches, checkpointing, order: the same gradients",
            (
                "model/test_shared_prefix.py",
                "model/test_logprobs.py",
                "model/test_checkpointing.py",
                "training/test_step.py",
                "model/test_recorded.py",
            ),
        ),
        Promise(
            "the sampler agrees with transformers, and its distribution is the stated one",
            ("rollouts/test_in_process.py", "rollouts/test_sampling.py"),
        ),
        Promise("memory is flat over 200 steps and follows the token budget", ("end_to_end/test_memory.py",)),
    ),
    "Right formulas": (
        Promise(
            "hand-worked numbers, a plain reference, invariances, and a sabotage of every file",
            ("objective",),
        ),
        Promise(
            "TRL's losses and gradients, in float64",
            ("benchmarks/test_parity.py",),
            ("benchmarks/parity/RESULTS.md",),
        ),
        Promise(
            "every preset learns, and a control does not",
            ("benchmarks/test_presets.py",),
            ("docs/results/presets.md",),
        ),
        Promise("DPO learns preferences", ("objective/test_dpo.py", "workbench/test_dpo.py")),
        Promise("the whole algorithm in one file, equal to the package", ("examples/test_minimal_grpo.py",)),
    ),
    "Rewards": (
        Promise(
            "mathematical answers: the cases, GSM8K in every form, 20,000 fuzzed inputs",
            ("rewards/mathematics",),
            ("docs/results/math_answer.md",),
        ),
        Promise(
            "code in a sandbox: the cases, attacks, bombs, nothing left behind",
            ("rewards/sandbox",),
            ("docs/results/sandbox.md",),
        ),
        Promise(
            "check-reward finds ten planted faults and passes ten good rewards",
            ("rewards/test_examine.py", "workbench/test_check_reward.py"),
        ),
        Promise(
            "one reward has one value in every command",
            ("end_to_end/test_one_value.py", "end_to_end/test_one_reward_one_value.py"),
        ),
    ),
    "Survives": (
        Promise("killed at 30 moments and resumed, bit for bit", ("end_to_end/test_kill.py",)),
        Promise(
            "full disks, read-only folders, damaged checkpoints",
            ("end_to_end/test_full_disk.py", "checkpoint", "training/test_resume.py"),
        ),
        Promise("NaN and infinity are caught and named", ("training/test_non_finite.py",)),
        Promise("2,000 fuzzed configurations and data files, no traceback", ("end_to_end/test_fuzz.py",)),
        Promise("memory and open files are flat over 500 steps", ("end_to_end/test_endurance.py",)),
        Promise("any step is replayed", ("workbench/test_replay.py", "cli/test_replay.py")),
        Promise("every line of the security page", ("end_to_end/test_hostile_inputs.py", "test_secrets.py")),
    ),
    "Seen": (
        Promise(
            "sick runs are named, healthy ones are not; an unseen set beside it",
            ("end_to_end/sick/test_zoo.py", "health"),
            ("docs/results/health.md",),
            "on the unseen set kl_runaway was raised on four of six healthy runs",
        ),
        Promise(
            "rollback recovers, three seeds of two illnesses",
            ("end_to_end/sick/test_recovery.py", "training/test_rollback.py"),
            ("docs/results/health.md",),
        ),
        Promise(
            "the report in a browser: numbers, keyboard, both themes, a phone's width, hostile text, print",
            ("report",),
        ),
        Promise(
            "metrics do not depend on micro-batches, and five are recomputed from the records",
            ("training/test_metrics_of_a_run.py", "training/test_measure.py"),
        ),
        Promise(
            "checks and records cost below 3 % of a step",
            ("benchmarks/test_watching.py",),
            ("docs/results/watching.md",),
        ),
    ),
    "Data, evaluation, comparison": (
        Promise(
            "eight objectives compared, three seeds",
            ("benchmarks/test_study.py", "workbench/test_compare.py", "workbench/test_comparison.py"),
            ("docs/results/study.md",),
        ),
        Promise(
            "recipes at equal tokens",
            ("benchmarks/test_recipes.py",),
            ("docs/results/recipes.md",),
            "neither recipe reached plain sampling's accuracy with fewer tokens; the table says so",
        ),
        Promise(
            "each recipe does what it says, and changes nothing when absent",
            ("training/test_recipes.py", "training/test_teaching.py", "prompts/test_curriculum.py", "golden"),
        ),
        Promise("pass@k, BLEU, ROUGE and intervals", ("evaluate", "workbench/test_evaluation.py")),
        Promise(
            "a blinded rating page filled in by a browser and read back",
            ("workbench/test_rating_page.py", "workbench/test_rate.py", "evaluate/test_ratings.py"),
        ),
        Promise("every source of prompts", ("prompts", "training/test_data_cases.py")),
        Promise(
            "exports load back with the same log-probs",
            ("checkpoint/test_export.py", "checkpoint/test_gguf.py", "cli/test_export.py"),
        ),
    ),
    "Past one machine": (
        Promise(
            "one, two and four ranks, DDP and FSDP2, three launchers: the same five steps",
            (
                "end_to_end/test_launchers.py",
                "training/test_distributed.py",
                "training/test_sharing.py",
                "model/test_sharding.py",
            ),
        ),
        Promise("DeepSpeed ZeRO-3 on two processes equals one; `make test-zero`", ("training/test_zero.py",)),
        Promise("two nodes, one killed", ("end_to_end/test_two_nodes.py",)),
        Promise(
            "rollouts by a vLLM server, its weights by a folder or sent",
            (
                "end_to_end/test_vllm.py",
                "rollouts/vllm",
                "training/test_serving.py",
                "training/test_transfer.py",
            ),
            (),
            "sending over NCCL has never been run; the same code was, over gloo",
        ),
        Promise(
            "a batch ahead: its gain, its correction, exact when off",
            ("training/test_ahead.py", "objective/test_sampler_correction.py", "benchmarks/test_overlap.py"),
        ),
        Promise(
            "plan: memory and time predicted and measured",
            ("workbench/planning", "benchmarks/test_plan.py", "cli/test_plan.py"),
            ("docs/results/plan.md",),
        ),
        Promise(
            "a 4-bit base below an adapter; the reference elsewhere",
            ("model/test_quantise.py", "model/test_reference.py", "end_to_end/test_memory_settings.py"),
        ),
        Promise(
            "a GPU",
            (),
            (),
            "nothing has been run on one; the guards of the code for it are tested on the CPU",
        ),
    ),
}


def read_report(path: Path) -> list[Case]:
    """The tests of a JUnit report.

    Raises:
        SystemExit: the file is not such a report.
    """
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        sys.exit(f"{path} is no JUnit report ({error}); run pytest with --junitxml={path}")
    cases = []
    for case in root.iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        cases.append(Case(case.get("classname", "").replace(".", "/"), case.get("name", ""), outcome))
    return cases


def row(promise: Promise, cases: Sequence[Case]) -> list[str]:
    """One line of the page."""
    mine: list[Case] = []
    not_run: list[str] = []
    for name in promise.tests:
        place = f"tests/{name.removesuffix('.py')}"
        found = [case for case in cases if case.file == place or case.file.startswith(f"{place}/")]
        mine += found
        not_run += [] if found else [f"`tests/{name}`"]
    counted = Counter(case.outcome for case in mine)
    failed = [f"`{case.file}.py::{case.name}`" for case in mine if case.outcome == "failed"]
    if not promise.tests:
        held = "see there" if promise.tables else "not shown"
    else:
        held = "yes" if counted["passed"] and not failed and not not_run else "**no**"
    said = [f"{counted[kind]} {kind}" for kind in ("passed", "failed", "skipped") if counted[kind]]
    said += ["failed: " + ", ".join(failed)] if failed else []
    said += ["not run: " + ", ".join(not_run)] if not_run else []
    said += [f"[{Path(table).stem}]({_from_page(table)})" for table in promise.tables]
    said += [promise.left] if promise.left else []
    return [promise.words, held, "; ".join(said)]


def begun(path: Path) -> str:
    """What a report is called, when its tests were begun, and how many they were."""
    suite = ElementTree.parse(path).getroot().find("testsuite")
    told = {} if suite is None else suite.attrib
    when = told.get("timestamp", "an unknown time")[:16].replace("T", " ")
    return f"`{path.name}`, {when}, {int(told.get('tests', 0)):,} tests"


def page(cases: Sequence[Case], *, commit: str, reports: Sequence[str] = ()) -> str:
    """The whole page."""
    counted = Counter(case.outcome for case in cases)
    lines = [
        "# What was promised, and what was seen",
        "",
        "Written by `make acceptance` (`python -m benchmarks.acceptance`) from reports of the last runs of the",
        "tests; the tables that it links to were each written by the command that they name.",
        "",
        *(f"- {report}" for report in reports),
        *([""] if reports else []),
        f"Source `{commit}`: {counted['passed']:,} tests passed, {counted['failed']:,} failed, "
        f"{counted['skipped']:,} were skipped.",
    ]
    for title, promises in PROMISES.items():
        lines += ["", f"## {title}", "", "| promise | held | what was seen |", "| --- | --- | --- |"]
        lines += [f"| {' | '.join(row(promise, cases))} |" for promise in promises]
    return "\n".join(lines) + "\n"


def _from_page(table: str) -> str:
    """A link from the page to another."""
    here = Path("docs/results")
    path = Path(table)
    return path.name if path.parent == here else "../../" + table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", nargs="+", type=Path, help="JUnit reports")
    paths: list[Path] = parser.parse_args().reports
    cases = [case for path in paths for case in read_report(path)]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=facts.ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    PAGE.write_text(page(cases, commit=commit, reports=[begun(path) for path in paths]), encoding="utf-8")
    print(f"written: {PAGE.relative_to(facts.ROOT)}")


if __name__ == "__main__":
    main()
