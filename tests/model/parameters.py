"""What of a model is trained."""

import torch


def trainable_parameters(model: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    """The parameters that take gradients, with their names, in the model's order; tied ones once."""
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
