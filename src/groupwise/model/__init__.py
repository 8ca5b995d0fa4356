"""Models: loading, adapters, the reference, and log-probs of what they sampled."""
