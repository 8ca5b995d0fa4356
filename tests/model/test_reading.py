import pytest
from huggingface_hub.utils import are_progress_bars_disabled
from transformers.utils import logging

from groupwise.errors import ConfigError, ModelError
from groupwise.model.reading import quiet, reading


def test_quiet_sets_back_what_was_set_also_after_an_exception() -> None:
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_info()
    logging.enable_progress_bar()
    try:
        with pytest.raises(ZeroDivisionError), quiet():  # noqa: PT012
            assert logging.get_verbosity() == logging.ERROR
            assert not logging.is_progress_bar_enabled()
            assert not are_progress_bars_disabled()  # a download may show how far it is
            raise ZeroDivisionError
        assert logging.get_verbosity() == logging.INFO
        assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity(level)
        if not bars:
            logging.disable_progress_bar()


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("gone"), KeyError("gone"), Exception("gone")])
def test_any_failure_is_one_sentence(error: Exception) -> None:
    with pytest.raises(ModelError, match=r"^the model m cannot be read: \w+: '?gone'?; do this$"):  # noqa: SIM117
        with reading("the model m", remedy="do this"):
            raise error


def test_errors_of_ours_pass_and_pages_are_shortened() -> None:
    with pytest.raises(ConfigError, match=r"^mine$"), reading("the model m"):
        raise ConfigError("mine")
    with pytest.raises(ModelError) as caught, reading("the model m"):
        raise OSError("\n".join(["first line", "", "second line", "third line", "x" * 900]))
    assert str(caught.value) == "the model m cannot be read: OSError: first line second line"


def test_code_that_comes_with_a_model() -> None:
    with pytest.raises(ModelError, match=r"model\.trust_remote_code=true"), reading("the model m"):
        raise ValueError("Please pass the argument `trust_remote_code=True` to allow custom code to be run.")
