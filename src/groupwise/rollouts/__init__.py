"""Rollouts: engines that sample them, and their collection into scored groups."""
