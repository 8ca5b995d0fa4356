from pathlib import Path

import groupwise
from tests.contracts.sizes import size_faults, stale_exceptions

SOURCE = Path(groupwise.__file__).parent


def test_files_and_functions_stay_readable() -> None:
    assert size_faults(SOURCE) == []


def test_no_exception_outlives_its_reason() -> None:
    assert stale_exceptions(SOURCE) == []
