"""How token losses become one number: one file each, the weight of each rollout's tokens.

An aggregation is a set of weights, not an order of averaging: it takes the token counts of every rollout in the
optimiser batch (over all micro-batches and ranks) and returns the weight of one token of each. The loss is then a
plain weighted sum, so that splitting the batch cannot change it. A rollout counts when it has a trainable token.
"""
