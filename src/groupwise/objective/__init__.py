"""The mathematics. Pure functions that import nothing of ours; each formula is written once, here."""
