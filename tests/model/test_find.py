import json
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import errors

from groupwise.errors import ModelError
from groupwise.model.find import find_model


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration's folder with a model in it; the working folder is elsewhere."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    base = tmp_path / "base"
    (base / "my-model").mkdir(parents=True)
    (base / "my-model" / "config.json").write_text("{}")
    return base


def test_names_of_ours_stay_names(place: Path) -> None:
    assert find_model("smollm2-135m", place) == "smollm2-135m"
    assert find_model("tiny", place) == "tiny"


def test_folders_and_files_from_the_configuration_then_the_working_folder(place: Path) -> None:
    assert find_model("my-model", place) == place / "my-model"
    assert find_model(str(place / "my-model"), place) == place / "my-model"
    assert find_model("../base/my-model", place) == place / "../base/my-model"
    other = Path.cwd() / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    assert find_model("./other", place) == other
    (place / "m.gguf").write_text("")
    assert find_model("m.gguf", place) == place / "m.gguf"


def test_the_home_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place))
    assert find_model("~/my-model", Path("/")) == place / "my-model"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("smollm-135m", "did you mean smollm2-135m"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "did you mean smollm2-135m"),
        ("my-modle", "did you mean my-model"),
        ("./my-modle", r"there is no .*base/my-modle or .*work/my-modle; did you mean my-model"),
        ("/nowhere/at/all", r"there is no /nowhere/at/all; without a model at hand, smollm2-135m"),
        ("gone.gguf", "there is no .*gone.gguf"),
        ("nobody/nothing", "the hub id nobody/nothing is not in the local cache while HF_HUB_OFFLINE"),
        ("two words", "not the form of a hub id"),
        ("a--b/c", "not the form of a hub id"),
        ("a/b/c", "there is no .*a/b/c"),
    ],
)
@pytest.mark.usefixtures("offline")
def test_no_such_model(place: Path, name: str, said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        find_model(name, place)
    assert str(caught.value).startswith(f"model.name {name!r}: there is no ")
    assert "\n" not in str(caught.value)


def test_folders_that_are_no_model(place: Path) -> None:
    (place / "empty").mkdir()
    with pytest.raises(ModelError, match=r"has no config\.json; is it the right folder"):
        find_model("empty", place)
    (place / "empty" / "q4.gguf").write_text("")
    with pytest.raises(ModelError, match=r"name the file, for example empty/q4\.gguf"):
        find_model("empty", place)
    (place / "adapter").mkdir()
    (place / "adapter" / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"holds an adapter.*lora\.adapter"):
        find_model("adapter", place)
    (place / "file.bin").write_text("")
    with pytest.raises(ModelError, match="is a file; name the folder"):
        find_model("file.bin", place)


def test_an_empty_name(place: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.name is empty"):
        find_model(" ", place)


def test_a_folder_with_a_tokenizer_alone(place: Path) -> None:
    (place / "words").mkdir()
    (place / "words" / "tokenizer.json").write_text("{}")
    assert find_model("words", place, key="model.tokenizer", tokenizer=True) == place / "words"
    with pytest.raises(ModelError, match=r"^model\.name 'words'"):
        find_model("words", place)


@pytest.mark.usefixtures("offline")
def test_a_hub_id_in_the_local_cache(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = tmp_path / "hub" / "models--some--model"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("abc")
    (repo / "snapshots" / "abc").mkdir(parents=True)
    (repo / "snapshots" / "abc" / "config.json").write_text(json.dumps({}))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    assert find_model("some/model", place) == "some/model"
    with pytest.raises(ModelError, match="some/model@v2 is not in the local cache"):
        find_model("some/model", place, revision="v2")


def _answer(kind: type[Exception]) -> Exception:
    import httpx2

    response = httpx2.Response(404, request=httpx2.Request("HEAD", "https://huggingface.co/some/model"))
    return kind("no", response=response) if issubclass(kind, errors.HfHubHTTPError) else kind("no")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (errors.GatedRepoError, "is gated; ask for access"),
        (errors.RepositoryNotFoundError, "the hub has no some/model@v2"),
        (errors.RevisionNotFoundError, r"model\.revision 'v2': the hub's some/model has no such revision"),
        (errors.LocalEntryNotFoundError, "cannot be reached"),
        (errors.RemoteEntryNotFoundError, r"has no config\.json"),
        (ConnectionError, "asking the hub for some/model@v2 failed"),
    ],
)
def test_what_the_hub_answers(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], said: str
) -> None:
    def ask(*args: object, **kwargs: object) -> str:
        raise _answer(kind)

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", ask)
    with pytest.raises(ModelError, match=said):
        find_model("some/model", place, revision="v2")


def test_a_revision_of_what_is_not_on_the_hub_is_refused(place: Path) -> None:
    (place / "m.gguf").write_bytes(b"")
    for name in ("tiny", "smollm2-135m", "my-model", "m.gguf"):
        with pytest.raises(ModelError, match=f"model.revision 'v1' has no effect: {name} is no hub id"):
            find_model(name, place, revision="v1")


@pytest.mark.parametrize("call", ["stat", "is_dir", "is_file"])
def test_a_folder_that_may_not_be_read_says_how_to_mend_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def denied(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, call, denied)  # as in a folder of mode 000; root may look anywhere
    with pytest.raises(ModelError, match=r"'my-model': .*cannot be read: permission denied; allow yourself"):
        find_model("my-model", place)


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "~nobody-of-that-name/x"])
def test_names_that_no_folder_can_have(place: Path, name: str, offline: None) -> None:
    with pytest.raises(ModelError) as caught:
        find_model(name, place)
    assert str(caught.value).startswith("model.name ")
    assert len(str(caught.value)) < 400
