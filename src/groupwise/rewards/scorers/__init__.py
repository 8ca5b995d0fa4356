"""Built-in rewards, one per file.

Each module holds the function of its own name. Its ordinary arguments are the completions and data columns, lists
with one item per rollout; its keyword-only arguments are its settings. Called on no rollouts it still checks that
its settings fit together.
"""
