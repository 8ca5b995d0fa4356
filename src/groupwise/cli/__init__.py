"""The command: one file per verb. Nothing heavy is imported before a verb runs, so that `--help` is instant."""
