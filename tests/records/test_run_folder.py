import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.errors import RunFolderError
from groupwise.records.run_folder import (
    FILES,
    MANIFEST,
    RunFolder,
    create,
    read_manifest,
    refuse,
    write_manifest,
)


def a_run(path: Path) -> RunFolder:
    """A folder as a finished run leaves it."""
    folder = create(path, overwrite=False)
    write_manifest(folder, seed=3, command=["groupwise", "train"], data_files={})
    folder.config_file.write_text("run: {}\n")
    folder.metrics_file.write_text('{"step": 1}\n')
    folder.rollout_file(1).write_bytes(b"old")
    folder.sample_file(1).write_text("old")
    folder.sample_file(1, held_out=True).write_text("old")
    folder.report_file.write_text("old")
    for name in ("model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja", "merges.txt"):
        folder.model_dir.mkdir(exist_ok=True)
        (folder.model_dir / name).write_text("old")
    (folder.model_dir / "adapter").mkdir()
    (folder.model_dir / "adapter" / "adapter_model.safetensors").write_text("old")
    folder.events_dir.mkdir()
    (folder.events_dir / "events.out.tfevents.123.host").write_text("old")
    return folder


def files_under(path: Path) -> set[str]:
    return {str(f.relative_to(path)) for f in path.rglob("*") if f.is_file()}


def test_a_new_folder_has_its_places(tmp_path: Path) -> None:
    folder = create(tmp_path / "deep" / "run", overwrite=False)
    assert sorted(p.name for p in folder.path.iterdir()) == ["rollouts", "samples"]
    assert folder.rollout_file(123) == tmp_path / "deep/run/rollouts/step-000123.parquet"
    assert folder.sample_file(7) == tmp_path / "deep/run/samples/step-000007.md"
    assert folder.sample_file(7, held_out=True).name == "step-000007-held-out.md"
    assert files_under(tmp_path) == set()  # the probe is gone
    places = {
        folder.config_file,
        folder.manifest_file,
        folder.metrics_file,
        folder.rollouts_dir,
        folder.samples_dir,
        folder.events_dir,
        folder.model_dir,
        folder.checkpoints_dir,
        folder.health_file,
        folder.report_file,
    }
    assert places == {folder.path / name for name in FILES}


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert create(tmp_path, overwrite=False).path == tmp_path


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_that_was_killed_before_its_manifest_left_nothing(tmp_path: Path, overwrite: bool) -> None:
    create(tmp_path, overwrite=False)
    for name in (".lock", ".probe.partial", ".manifest.json.123.partial"):
        (tmp_path / name).write_bytes(b"")
    refuse(tmp_path, overwrite=overwrite)
    assert create(tmp_path, overwrite=overwrite).path == tmp_path
    (tmp_path / "rollouts" / "mine.txt").write_text("x")
    with pytest.raises(RunFolderError):
        refuse(tmp_path, overwrite=overwrite)


def test_without_a_path_the_folder_is_dated_and_never_taken_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [create(None, overwrite=False).path for _ in range(5)]
    assert len(set(paths)) == 5
    for path in paths:
        assert path.parent == tmp_path / "runs"
        assert path.name[:2] == "20"
        assert path.is_dir()


def test_a_second_run_into_the_same_folder_is_refused(tmp_path: Path) -> None:
    # Case g08: old rollouts must not be picked up as if they were new.
    folder = a_run(tmp_path / "run")
    before = files_under(tmp_path)
    with pytest.raises(
        RunFolderError, match=r"not empty; choose another run\.dir, or set run\.overwrite=true"
    ):
        create(folder.path, overwrite=False)
    assert files_under(tmp_path) == before


def test_overwriting_removes_our_files_and_no_others(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    mine = [
        "notes.txt",
        "rollouts/notes.txt",
        "rollouts/best.parquet",
        "model/notes.txt",
        "figures/step-000001.parquet",
    ]
    for name in mine:
        file = folder.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    create(folder.path, overwrite=True)
    assert files_under(folder.path) == set(mine)
    assert not folder.events_dir.exists()  # ours and empty
    assert folder.rollouts_dir.is_dir()


def test_overwriting_a_folder_without_a_run_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("the user's own")
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "step-000001.parquet").write_text("who knows")
    for manifest in (None, "not json", "[]", '{"other": "tool"}'):
        if manifest is not None:
            (tmp_path / "manifest.json").write_text(manifest)
        before = files_under(tmp_path)
        with pytest.raises(
            RunFolderError, match=r"holds files and no run of groupwise .*nothing was removed"
        ):
            create(tmp_path, overwrite=True)
        assert files_under(tmp_path) == before


def test_an_overwrite_that_was_interrupted_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = a_run(tmp_path / "run")
    unlink = Path.unlink

    def stop_at_the_model(self: Path, missing_ok: bool = False) -> None:
        if self.suffix == ".safetensors":
            raise KeyboardInterrupt
        unlink(self, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", stop_at_the_model)
        with pytest.raises(KeyboardInterrupt):
            create(folder.path, overwrite=True)
    create(folder.path, overwrite=True)
    assert files_under(folder.path) == set()


def test_what_create_would_refuse_is_known_before_and_nothing_is_touched(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    before = files_under(tmp_path)
    for path, overwrite, why in (
        (folder.path, False, "not empty"),
        (tmp_path / "mine", True, "no run of groupwise"),
        (tmp_path / "mine" / "notes.txt", True, "is a file"),
        (tmp_path / "mine" / "notes.txt" / "below", False, "cannot be written"),
    ):
        with pytest.raises(RunFolderError, match=why):
            refuse(path, overwrite=overwrite)
    refuse(folder.path, overwrite=True)
    refuse(tmp_path / "new" / "run", overwrite=False)
    refuse(None, overwrite=False)
    assert files_under(tmp_path) == before
    assert not (tmp_path / "new").exists()


def test_overwrite_is_harmless_where_there_is_nothing(tmp_path: Path) -> None:
    assert create(tmp_path / "new", overwrite=True).rollouts_dir.is_dir()


def test_places_that_cannot_hold_a_run_are_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(RunFolderError, match=r"file is a file; choose another run\.dir"):
        create(file, overwrite=True)
    with pytest.raises(RunFolderError, match=r"below cannot be written: .*irectory; choose another run\.dir"):
        create(file / "below", overwrite=False)
    with pytest.raises(RunFolderError, match="File name too long; choose another"):
        create(tmp_path / ("x" * 300), overwrite=False)
    assert file.read_text() == "x"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc and /sys are Linux's")
def test_a_read_only_file_system_is_found_by_writing() -> None:
    # Permission bits say nothing to root; /proc refuses it all the same.
    with pytest.raises(RunFolderError, match=r"run\.dir /proc/groupwise cannot be written"):
        create(Path("/proc/groupwise"), overwrite=False)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(RunFolderError, match="Permission denied"):
        create(tmp_path, overwrite=False)


def test_the_manifest_says_what_the_run_was_made_with(tmp_path: Path) -> None:
    data = tmp_path / "train.jsonl"
    data.write_bytes(b"abc")
    folder = create(tmp_path / "run", overwrite=False)
    write_manifest(folder, seed=7, command=["groupwise", "train", "c.yaml"], data_files={"train.jsonl": data})
    manifest = read_manifest(folder)
    assert set(manifest) == set(MANIFEST)
    assert manifest["seed"] == 7
    assert manifest["command"] == ["groupwise", "train", "c.yaml"]
    # SHA-256 of "abc", from FIPS 180-2
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert manifest["data"] == {"train.jsonl": {"sha256": known, "bytes": 3}}
    assert known == hashlib.sha256(b"abc").hexdigest()
    assert manifest["versions"]["python"].startswith("3.")
    assert {"torch", "transformers", "peft", "numpy", "pyarrow"} <= set(manifest["versions"])
    assert manifest["versions"]["torch"].split(".")[0].isdigit()
    assert manifest["platform"]["cores"] >= 1


def test_the_manifest_names_what_came_from_python(tmp_path: Path) -> None:
    folder = create(tmp_path / "run", overwrite=False)
    rows = [{"prompt": "2 + 2 =", "answer": "4"}, {"prompt": "é", "answer": None}]

    def found(*given: dict[str, object]) -> dict[str, object]:
        write_manifest(
            folder, seed=0, command=[], data_files={}, python_rewards=["right"], python_rows={"train": given}
        )
        manifest = read_manifest(folder)
        assert set(manifest) == set(MANIFEST)
        assert manifest["python_rewards"] == ["right"]
        assert manifest["python_rows"].keys() == {"train"}
        return manifest["python_rows"]["train"]

    text = '{"prompt": "2 + 2 =", "answer": "4"}\n{"prompt": "\\u00e9", "answer": null}\n'
    known = {"rows": 2, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    assert found(*rows) == known
    assert found(rows[0], {**rows[1], "answer": 0}) != known  # one changed value shows
    assert found(*rows[::-1]) != known  # and so does the order
    # What JSON cannot hold is no obstacle.
    odd = [{"prompt": "x", "made": {1, 2}}, {"prompt": "y", "pairs": {(1, 2): 3}}, {"prompt": "\ud800"}]
    assert found(*odd) == found(*odd)
    assert found(*odd)["rows"] == 3
    write_manifest(folder, seed=0, command=[], data_files={})
    manifest = read_manifest(folder)
    assert (manifest["python_rewards"], manifest["python_rows"]) == ([], {})


def test_the_manifest_is_written_without_importing_what_it_names(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from groupwise.records.run_folder import create, write_manifest\n"
        f"write_manifest(create(Path({str(tmp_path / 'r')!r}), overwrite=False), seed=0, command=[], data_files={{}})\n"
        "assert not {'torch', 'transformers', 'peft'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert json.loads((tmp_path / "r" / "manifest.json").read_text())["versions"]["torch"]


def test_missing_things_are_named(tmp_path: Path) -> None:
    folder = create(tmp_path / "run", overwrite=False)
    with pytest.raises(RunFolderError, match=r"the data file .*none\.jsonl cannot be read: No such file"):
        write_manifest(folder, seed=0, command=[], data_files={"none.jsonl": tmp_path / "none.jsonl"})
    with pytest.raises(RunFolderError, match=r"run is not a run folder: it has no manifest\.json"):
        read_manifest(folder)
    for damaged in ("{", "[" * 100_000, '{"a": "\ud800'):
        folder.manifest_file.write_bytes(damaged.encode("utf-8", "surrogatepass"))
        with pytest.raises(RunFolderError, match=r"manifest\.json cannot be read"):
            read_manifest(folder)


@pytest.mark.parametrize(
    "field",
    [
        {"versions": []},
        {"data": "train.jsonl"},
        {"python_rewards": 3},
        {"python_rows": None},
        {"resumed": {}},
        {"resumed": ["step-000001"]},
        {"resumed": [{"at": "step-000001"}]},
    ],
)
def test_a_manifest_that_was_changed_is_refused(tmp_path: Path, field: dict[str, object]) -> None:
    folder = a_run(tmp_path / "run")
    folder.manifest_file.write_text(json.dumps({**read_manifest(folder), **field}))
    with pytest.raises(RunFolderError, match=f"is damaged: its field {next(iter(field))} is not as it was"):
        read_manifest(folder)


def test_a_change_of_the_working_folder_does_not_take_the_run_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    folder = create(Path("a/run"), overwrite=False)
    assert folder.shown == Path("a/run")
    monkeypatch.chdir(tmp_path / "elsewhere")
    write_manifest(folder, seed=3, command=[], data_files={})
    assert (tmp_path / "a/run/manifest.json").is_file()
    assert folder.shown == tmp_path / "a/run"


def test_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = create(Path("~/run"), overwrite=False)
    assert folder.path == tmp_path / "run"
    write_manifest(folder, seed=3, command=[], data_files={})
    with pytest.raises(RunFolderError, match="exists and is not empty"):
        refuse(Path("~/run"), overwrite=False)


def test_where_no_dated_folder_can_be_made_runs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as inside:
        inside.setattr(os, "access", lambda *_: False)  # root may write anywhere
        with pytest.raises(RunFolderError, match=r"^the folder .*/runs cannot be written: .*set run\.dir"):
            refuse(None, overwrite=False)
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunFolderError, match=r"^the folder .*/runs cannot be written: .* is not a directory"):
        create(None, overwrite=False)


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"])
def test_names_that_no_folder_can_have(tmp_path: Path, name: str) -> None:
    for call in (create, refuse):
        with pytest.raises(RunFolderError, match=r"cannot be written: .*; choose another run\.dir"):
            call(tmp_path / name, overwrite=False)
