"""What runs in a process of its own: ours, TRL's, vLLM's. Each in the environment of its library."""
