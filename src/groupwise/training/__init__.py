"""The training loop and what it does in a step."""
