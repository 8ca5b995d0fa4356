"""groupwise: train language models with group-relative policy optimisation."""
