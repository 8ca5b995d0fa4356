"""The rating page filled in by headless Chromium, and the file that it saves imported."""

from __future__ import annotations

import json
import time
from pathlib import Path

from groupwise.workbench.rate import Answered, export, read_ratings
from tests.report.browser import Tab

HOSTILE = "</script><img src=x onerror=\"document.title='broken'\"><b>bold</b> é 日本"


def test_a_person_fills_it_in_and_the_file_is_imported(tab: Tab, tmp_path: Path) -> None:
    given = {
        model: [
            Answered(id=f"d:{i}", prompt=f"Question {i}?", responses=[f"{word} {i} {HOSTILE}"])
            for i in range(3)
        ]
        for model, word in (("runs/a", "good"), ("runs/b", "bad"))
    }
    export(given, tmp_path / "sheet", question="Is it kind?")
    key = {item["item"]: item for item in json.loads((tmp_path / "sheet" / "key.json").read_text())["items"]}
    tab.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    tab.window(390, 800)
    tab.open(tmp_path / "sheet" / "sheet.html")
    assert tab.run("document.querySelector('#question').textContent") == "Is it kind?"
    assert tab.run("document.querySelectorAll('article').length") == 6
    assert tab.run("document.documentElement.scrollWidth <= window.innerWidth")
    responses = tab.run(
        "[...document.querySelectorAll('article')].map(a => a.querySelectorAll('.text')[1].textContent)"
    )
    assert responses == [item["response"] for item in key.values()]
    assert tab.run("document.title") == "Rating sheet"

    tab.click("#save")  # without a name nothing is saved
    assert not list(tmp_path.glob("ratings-*"))
    tab.click("#rater")
    tab.call("Input.insertText", text="Ann B")
    wanted = {code: 5 if item["model"] == "runs/a" else 2 for code, item in key.items()}
    left_out = next(code for code, item in key.items() if item["model"] == "runs/b")
    for code, value in wanted.items():
        if code != left_out:
            tab.click(f"[id='item-{code}'] input[value='{value}']")
    assert tab.run("document.querySelector('#progress').textContent") == "5 of 6 rated"

    tab.open(tmp_path / "sheet" / "sheet.html")  # what was entered is still there
    assert tab.run("document.querySelector('#progress').textContent") == "5 of 6 rated"
    assert tab.run("document.querySelector('#rater').value") == "Ann B"
    tab.click("#save")
    file = tmp_path / "ratings-Ann_B.json"
    deadline = time.monotonic() + 20
    while not file.exists() and time.monotonic() < deadline:
        tab.run("0")
        time.sleep(0.05)

    found = read_ratings(tmp_path / "sheet", [file])
    assert found.raters == {"Ann B": 5}
    assert {model: each.value for model, each in found.means().items()} == {"runs/a": 5.0, "runs/b": 2.0}
    assert [item for item in found.items if not item.ratings] == [
        item for item, code in zip(found.items, key, strict=True) if code == left_out
    ]
    assert tab.requests == [] or all(url.startswith("blob:") for url in tab.requests)
    assert [said for said in tab.complaints if "verbose" not in said] == []
