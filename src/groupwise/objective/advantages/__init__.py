"""Advantage estimators, one per file, in NumPy and float64.

The names of their positional arguments say what they take (see `objective.estimator`): `rewards_G` of one group,
`rewards_N` of the batch, `rewards_NT` by token. They give one advantage per rollout, or one per trained token.

Each module holds the function of its own name, whose keyword-only arguments are its settings, and `FORMULA`, which
`groupwise explain` prints with the settings filled in.
"""
