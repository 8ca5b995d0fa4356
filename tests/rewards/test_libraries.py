import sys
from pathlib import Path

import pytest

from groupwise.config.rewards import RewardConfig
from groupwise.errors import ConfigError
from groupwise.rewards import build
from groupwise.rewards.libraries import library


def test_a_module_is_imported() -> None:
    assert library("json", package="json", extra="text", scorer="x").loads("1") == 1


def test_what_is_missing_is_named_with_the_remedy() -> None:
    with pytest.raises(
        ConfigError, match=r"'x' needs the package no-such, which is not installed; run pip install"
    ):
        library("no_such_module", package="no-such", extra="text", scorer="x")


@pytest.mark.parametrize(
    ("scorer", "module", "package", "settings"),
    [
        ("language", "py3langid.langid", "py3langid", {"code": "en"}),
        ("sentiment", "vaderSentiment.vaderSentiment", "vaderSentiment", {}),
        ("bleu", "sacrebleu.metrics", "sacrebleu", {}),
        ("rouge", "rapidfuzz.distance", "rapidfuzz", {}),
        ("similarity", "rapidfuzz.distance", "rapidfuzz", {}),
    ],
)
def test_a_missing_library_is_found_when_the_rewards_are_built(
    scorer: str, module: str, package: str, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupwise.rewards.scorers import sentiment

    sentiment._analyzer.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"'{scorer}' needs the package {package}, .*groupwise\[text\]"):
        build([RewardConfig(name=scorer, settings=settings)], base=Path())
