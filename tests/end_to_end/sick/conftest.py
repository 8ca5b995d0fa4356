from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs live, and the models that they begin with are kept for all of them."""
    return tmp_path_factory.mktemp("zoo")
