"""Sampling by a vLLM server that is given the policy's weights after each update."""
