from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.errors import DataError
from groupwise.workbench.rate import Answered, export, read_ratings, readable, responses_in


def answered(model: str, count: int = 4) -> list[Answered]:
    return [
        Answered(
            id=f"data:{i}", prompt=f"Question {i}?", responses=[f"{model} says {i}", f"{model} again {i}"]
        )
        for i in range(count)
    ]


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    folder = tmp_path / "sheet"
    assert export({"runs/a": answered("one"), "runs/b": answered("two")}, folder, prompts=3) == 6
    return folder


def key_of(folder: Path) -> dict[str, dict[str, str]]:
    return {item["item"]: item for item in json.loads((folder / "key.json").read_text())["items"]}


def rows_of(folder: Path) -> list[dict[str, str]]:
    text = (folder / "sheet.csv").read_text(encoding="utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def filled(
    folder: Path, rate: Callable[[dict[str, str]], object], name: str = "ann", *, delimiter: str = ","
) -> Path:
    """The sheet as a rater sends it back."""
    rows = rows_of(folder)
    file = folder.parent / f"{name}.csv"
    with file.open("w", newline="", encoding="utf-8-sig") as out:
        writer = csv.writer(out, delimiter=delimiter)
        writer.writerow(rows[0])
        key = key_of(folder)
        for row in rows:
            rating = rate(key[row["item"]])
            writer.writerow(
                [row["item"], row["prompt"], row["response"], "" if rating is None else rating, ""]
            )
    return file


def test_a_sheet_is_blind_shuffled_and_whole(sheet: Path) -> None:
    rows, key = rows_of(sheet), key_of(sheet)
    assert [row["item"] for row in rows] == list(key)
    assert {(row["prompt"], row["response"]) for row in rows} == {
        (item["prompt"], item["response"]) for item in key.values()
    }
    for name in ("sheet.csv", "sheet.html"):
        assert "runs/" not in (sheet / name).read_text()
    models = [key[row["item"]]["model"] for row in rows]
    assert sorted(models) == ["runs/a"] * 3 + ["runs/b"] * 3
    assert models not in (sorted(models), sorted(models, reverse=True))
    # Each prompt is there for both, and codes say nothing of the order in the key's making.
    assert all(len({i["model"] for i in key.values() if i["prompt"] == row["prompt"]}) == 2 for row in rows)
    # No spreadsheet takes a code for a number, as it would 012345 and 12e456.
    assert all(re.fullmatch(r"[b-df-hj-np-tv-z]{6}", code) for code in key)


def test_the_seed_decides(tmp_path: Path) -> None:
    given = {"runs/a": answered("one", 30), "runs/b": answered("two", 30)}
    for name, seed in (("x", 0), ("y", 0), ("z", 1)):
        export(given, tmp_path / name, prompts=5, seed=seed)
    keys = [(tmp_path / name / "key.json").read_text() for name in ("x", "y", "z")]
    assert keys[0] == keys[1] != keys[2]
    assert export(given, tmp_path / "all", prompts=99, per_prompt=2) == 120


def test_only_prompts_that_all_answered(tmp_path: Path) -> None:
    export({"a": answered("one", 2), "b": answered("two", 4)}, tmp_path / "x")
    assert {item["prompt"] for item in key_of(tmp_path / "x").values()} == {"Question 0?", "Question 1?"}
    with pytest.raises(DataError, match="no prompt was answered by all of a, b"):
        export({"a": [], "b": answered("two")}, tmp_path / "y")


def test_hostile_text_is_text(tmp_path: Path) -> None:
    bad = "</script><script>alert(1)</script>"
    given = [Answered(id="d:0", prompt="=HYPERLINK(1)", responses=[bad])]
    export({"a": given}, tmp_path / "x")
    page = (tmp_path / "x" / "sheet.html").read_text()
    assert bad not in page
    assert page.count("<script") == 2
    assert rows_of(tmp_path / "x")[0]["prompt"] == "'=HYPERLINK(1)"


def test_ratings_come_back(sheet: Path) -> None:
    ann = filled(sheet, lambda item: 5 if item["model"] == "runs/a" else 3)
    ben = filled(sheet, lambda item: 4 if item["model"] == "runs/a" else None, "ben", delimiter=";")
    found = read_ratings(sheet, [ann, ben])
    assert found.raters == {"ann": 6, "ben": 3}
    assert {model: each.value for model, each in found.means().items()} == {"runs/a": 4.5, "runs/b": 3.0}
    (preference,) = found.preferences()
    assert {preference.model: preference.share.value}.get("runs/a", 1 - preference.share.value) == 1.0
    assert preference.prompts == 3
    # Units with two ratings: 5 and 4 three times. Observed 2 x 1 x 3 / 6 = 1; expected 2 x 9 / 30 = 0.6; interval
    # alpha 1 - 1 / 0.6 = -2/3.
    assert found.alpha["interval"] == pytest.approx(-2 / 3)
    lines = found.lines()
    assert lines[0].split("  ", 1)[1].strip() == "2 (ann 6, ben 3 of 6 responses)"
    assert any("4.50 [4.50, 4.50], mean of 1 to 5" in line for line in lines)
    assert "too little to conclude from" in lines[-1]
    data = json.loads(found.json(), parse_constant=pytest.fail)
    assert data["means"]["runs/b"]["value"] == 3.0
    assert "one rater" in read_ratings(sheet, [ann]).lines()[-1]
    same = filled(sheet, lambda item: 3, "cat"), filled(sheet, lambda item: 3, "dan")
    assert "not defined" in read_ratings(sheet, same).lines()[-1]


def test_models_measured_on_data_of_other_names_and_orders_are_paired_by_the_prompt(tmp_path: Path) -> None:
    turned = [
        Answered(id=f"other.csv:{i}", prompt=each.prompt, responses=each.responses)
        for i, each in enumerate(reversed(answered("two")))
    ]
    export({"a": answered("one"), "b": turned}, tmp_path / "x")
    found = read_ratings(
        tmp_path / "x", [filled(tmp_path / "x", lambda item: 5 if item["model"] == "a" else 2)]
    )
    (preference,) = found.preferences()
    assert (preference.prompts, preference.share.value in (0.0, 1.0)) == (4, True)
    ids = {(item["prompt_id"], item["prompt"]) for item in key_of(tmp_path / "x").values()}
    assert ids == {(f"data:{i}", f"Question {i}?") for i in range(4)}


def test_a_long_response_comes_back(tmp_path: Path) -> None:
    """Longer than the 128 kB of a field that Python's reader takes by itself; codes in capitals are the same."""
    export({"a": [Answered(id="d:0", prompt="?", responses=["long " * 60_000])]}, tmp_path / "x")
    file = filled(tmp_path / "x", lambda item: 4)
    code = next(iter(key_of(tmp_path / "x")))
    file.write_text(file.read_text(encoding="utf-8").replace(code, code.upper()), encoding="utf-8")
    found = read_ratings(tmp_path / "x", [file])
    assert found.raters == {"ann": 1}
    # Of one response nothing is known about others.
    assert "a          4.00, mean of 1 to 5" in found.lines()
    assert json.loads(found.json())["means"]["a"] == {"value": 4.0, "low": None, "high": None}


def page_file(folder: Path, **changes: object) -> Path:
    key = json.loads((folder / "key.json").read_text())
    data = {
        "sheet": key["sheet"],
        "rater": "eve",
        "ratings": {key["items"][0]["item"]: {"rating": 2, "note": "x"}},
    }
    file = folder.parent / "ratings-eve.json"
    file.write_text(json.dumps({**data, **changes}))
    return file


def test_what_the_page_saves_is_read(sheet: Path) -> None:
    found = read_ratings(sheet, [page_file(sheet)])
    assert found.raters == {"eve": 1}
    assert [dict(item.ratings) for item in found.items if item.ratings] == [{"eve": 2}]


@pytest.mark.parametrize("value", [0, 6, 2.5, "x", True, None, [3]])
def test_a_rating_outside_the_scale(sheet: Path, value: object) -> None:
    code = next(iter(key_of(sheet)))
    with pytest.raises(DataError, match=rf"item {code}: the rating .* is not a whole number from 1 to 5"):
        read_ratings(sheet, [page_file(sheet, ratings={code: {"rating": value}})])
    if isinstance(value, int | float) and not isinstance(value, bool):
        with pytest.raises(DataError, match=rf"ann.csv line 2: the rating '{value}' is not a whole number"):
            read_ratings(sheet, [filled(sheet, lambda item: value)])


def test_what_is_refused(sheet: Path, tmp_path: Path) -> None:
    ann = filled(sheet, lambda item: 3)
    with pytest.raises(DataError, match=r"sheet holds a key.json already"):
        export({"a": answered("one")}, sheet)
    with pytest.raises(DataError, match="is of the sheet 123456, and this is"):
        read_ratings(sheet, [page_file(sheet, sheet="123456")])
    with pytest.raises(DataError, match="is not what the rating page saves"):
        read_ratings(sheet, [page_file(sheet, ratings=3)])
    with pytest.raises(
        DataError, match=r"key.json cannot be read: .*name the folder that `groupwise rate export` made"
    ):
        read_ratings(tmp_path / "nowhere", [ann])
    with pytest.raises(DataError, match=r"nobody.csv cannot be read"):
        read_ratings(sheet, [tmp_path / "nobody.csv"])
    with pytest.raises(DataError, match="ann has rated in another file already"):
        read_ratings(sheet, [ann, ann])
    with pytest.raises(DataError, match="no response is rated in"):
        read_ratings(sheet, [filled(sheet, lambda item: None)])
    (tmp_path / "other").mkdir()
    for text in ("{", "[]", '{"sheet": "a", "items": null}', '{"sheet": "a", "items": [{"x": 1}, 3]}'):
        (tmp_path / "other" / "key.json").write_text(text)
        with pytest.raises(DataError, match=r"key.json is not the key of a sheet"):
            read_ratings(tmp_path / "other", [ann])
    ann.write_text("item,score\n1,2\n")
    with pytest.raises(DataError, match=r"has no columns item and rating; fill in a copy of sheet.csv"):
        read_ratings(sheet, [ann])
    ann.write_text("item,rating\nabc,2\n")
    with pytest.raises(DataError, match=r"ann.csv line 2: there is no item 'abc'"):
        read_ratings(sheet, [ann])
    ann.write_text("item,rating\nabc,2\nabc,2\n")
    with pytest.raises(DataError, match=r"ann.csv line 3: the item abc is rated twice"):
        read_ratings(sheet, [ann])
    ann.write_text("rating,item\n2\n")
    with pytest.raises(DataError, match=r"ann.csv line 2: a rating without its item"):
        read_ratings(sheet, [ann])
    ann.write_text('item,rating\n"abc"d,2\n')
    with pytest.raises(DataError, match=r"ann.csv line 2: .* save the sheet as CSV again"):
        read_ratings(sheet, [ann])
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(DataError, match=r"file.txt cannot be made: .*name another folder"):
        export({"a": answered("one")}, tmp_path / "file.txt")
    none = [Answered(id=each.id, prompt=each.prompt, responses=[]) for each in answered("two")]
    with pytest.raises(DataError, match=r"b has prompts without a response"):
        export({"a": answered("one"), "b": none}, tmp_path / "z")
    ann.write_bytes(b"item,rating\n\xff,2\n")
    with pytest.raises(DataError, match="save it as CSV UTF-8"):
        read_ratings(sheet, [ann])


def test_responses_of_an_evaluation(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    prompts = [
        {"id": "d:0", "prompt": "<|user|>Hi", "messages": chat, "responses": [{"text": "Hello"}]},
        {"id": "d:1", "prompt": "plain", "messages": None, "responses": [{"text": "a"}, {"text": "b"}]},
    ]
    file.write_text(json.dumps({"prompts": prompts}))
    assert responses_in(file) == [
        Answered(id="d:0", prompt="system: Be brief.\n\nuser: Hi", responses=["Hello"]),
        Answered(id="d:1", prompt="plain", responses=["a", "b"]),
    ]
    assert readable(chat[1:], "<|user|>Hi") == "Hi"
    file.write_text(json.dumps({"prompts": [{**prompts[1], "responses": [{"text": None}]}]}))
    with pytest.raises(DataError, match=r"writes .TypeError: the text of a response is None"):
        responses_in(file)
    file.write_text("[]")
    with pytest.raises(DataError, match="is not what `groupwise eval --output` writes"):
        responses_in(file)
    with pytest.raises(DataError, match="cannot be read"):
        responses_in(tmp_path / "none.json")
