"""The configuration as a run's folder keeps it."""

from __future__ import annotations

from groupwise.config import LoadedConfig, yaml
from groupwise.config.keys import leaves
from groupwise.records.replace import replace_file
from groupwise.records.run_folder import RunFolder


def write_config(folder: RunFolder, loaded: LoadedConfig) -> None:
    """Write `config.yaml`.

    Raises:
        RunFolderError: it cannot be written.
    """
    text = _annotated(loaded).encode()
    replace_file(folder.config_file, lambda file: file.write(text))


def _annotated(loaded: LoadedConfig) -> str:
    """The resolved configuration as YAML, with a comment behind each value that did not come from a default."""
    tree = loaded.config.model_dump(mode="json")
    tree["run"]["base"] = str(loaded.base.resolve())  # so that starting from the run folder finds everything
    origins = loaded.origins
    if origins.get("objective.aggregation.length") == "rollout.max_new_tokens":
        tree["objective"]["aggregation"]["length"] = None  # so that it goes on following that setting
    given = [
        f"#   {key} = {value!r}: {origins[key]}"
        for key, value in leaves(tree)
        if origins.get(key, "default") != "default"
    ]
    return (
        yaml.dump(tree) + "\n# Where values came from (all others are defaults):\n" + "\n".join(given) + "\n"
    )
