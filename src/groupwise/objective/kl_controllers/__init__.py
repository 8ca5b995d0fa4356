"""Controllers of the KL coefficient, one per file: a pure function of what was measured to the next beta.

Each takes `beta` (in force before), `start` (`objective.kl.beta`), `step` (0 for the first) and the KL of the step
before, per token and per rollout (NaN before the first step and where none was measured). So beta and that KL are all
that a run has to remember.
"""
