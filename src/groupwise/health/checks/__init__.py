"""Health checks, one per file: what has been measured of a run so far to what is wrong with it.

A check is called after a step with the history of metrics and the facts of the run, and returns findings of the latest
step: mostly none. It judges by what is there and is silent about metrics that a run does not have. Its keyword-only
arguments are its thresholds. What each finding means, how to confirm it and what to try stands in docs/health.md.
"""
