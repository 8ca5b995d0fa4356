"""The configuration: one model per room, the tree, presets as data, and advice on ranges.

Reads names and settings from the registries without importing torch or transformers.
"""

from groupwise.config.load import LoadedConfig, load
from groupwise.config.run import RunConfig

__all__ = ["LoadedConfig", "RunConfig", "load"]
