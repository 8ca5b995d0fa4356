"""Advantage estimators, one per file. `rewards_G` in, `advantages_G` out, in float64.

Each module holds the function of its own name, whose keyword-only arguments are its settings, and `FORMULA`, which
`groupwise explain` prints with the settings filled in.
"""
