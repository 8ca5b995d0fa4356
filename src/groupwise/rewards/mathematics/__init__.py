"""Answers of mathematics: found in a text, spelled one way, read by a grammar, compared exactly where that is possible.

`finding` takes the answer out of a completion, `spelling` writes it one way, `expressions` and `shapes` read it,
`units` knows what stands behind a number, `equality` compares, and `workers` runs in a process that can be killed
whatever may take long. Nothing here is ever evaluated as code.
"""
