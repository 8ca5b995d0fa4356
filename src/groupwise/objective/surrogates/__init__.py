"""Surrogates to be maximised, one per file: a value per token from the ratio and the advantage.

All arrays are flat: one entry per trainable token of the micro-batch, M of them, so padding does not exist here.
"""
