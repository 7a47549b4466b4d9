"""Networks of PyTorch: their layers, and what they predict. PyTorch itself is not imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from popfit._errors import InputError

Array: TypeAlias = npt.NDArray[Any]

#: Activations of PyTorch by the names of their classes, with popfit's names.
ACTIVATIONS = {
    "SiLU": "silu",
    "LeakyReLU": "leaky_relu",
    "ReLU": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "GELU": "gelu",
}
#: Layers of PyTorch that do nothing when spectra are predicted.
IDLE_LAYERS = ("Dropout", "Identity")
#: Largest difference between a network and the module that it was made of, relative to the largest value.
TOLERANCE = 1e-4


def sequence_of_layers(module: Any) -> tuple[list[Array], list[Array], str]:
    """Return weights, biases and the activation of a module of PyTorch that is a sequence of linear layers.

    Raises
    ------
    InputError
        If the module has other layers, several kinds of activations, or another order.
    """
    if not hasattr(module, "named_modules"):
        raise InputError(f"module: {type(module).__name__}; give a torch.nn.Module", argument="module")
    # Layers that a sequence has twice are two layers, so duplicates are kept.
    leaves = [part for _, part in module.named_modules(remove_duplicate=False) if not list(part.children())]
    leaves = [leaf for leaf in leaves if type(leaf).__name__ not in IDLE_LAYERS]
    kinds = [type(leaf).__name__ for leaf in leaves]
    for leaf, kind in zip(leaves, kinds, strict=True):
        if kind != "Linear" and kind not in ACTIVATIONS:
            raise InputError(f"module: a layer {kind}, which popfit does not have", argument="module")
        if kind == "LeakyReLU" and leaf.negative_slope != 0.01:
            raise InputError(
                f"module: LeakyReLU({leaf.negative_slope}); popfit has the slope 0.01 alone", argument="module"
            )
        if kind == "GELU" and getattr(leaf, "approximate", "none") != "none":
            raise InputError(
                f'module: GELU(approximate="{leaf.approximate}"); popfit has approximate="none" alone',
                argument="module",
            )
    activations = sorted(set(kinds) - {"Linear"})
    if len(activations) != 1:
        raise InputError(f"module: activations {activations}; popfit has one kind per network", argument="module")
    if len(kinds) % 2 == 0 or any((kind == "Linear") != (k % 2 == 0) for k, kind in enumerate(kinds)):
        raise InputError(
            f"module: the layers {', '.join(kinds)}; popfit has Linear, activation, Linear, …, Linear, each in the "
            "order in which the module has it (give a torch.nn.Sequential, or use Emulator.from_layers)",
            argument="module",
        )
    weights, biases = [], []
    for leaf in leaves[::2]:
        weights.append(leaf.weight.detach().cpu().float().numpy())
        no_bias = leaf.bias is None
        biases.append(np.zeros(len(weights[-1])) if no_bias else leaf.bias.detach().cpu().float().numpy())
    return weights, biases, ACTIVATIONS[activations[0]]


def compare_with_module(
    predict: Callable[[Array], Array], module: Any, labels: Sequence[Mapping[str, Any]], output: str
) -> None:
    """Compare what a network predicts with what a module of PyTorch does, at two sets of labels.

    Nothing is compared where PyTorch is not imported, so that `module` cannot be one of its modules.

    Raises
    ------
    InputError
        If they differ by more than 1e-4 of the largest value, or the module fails.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        return
    # 1. Labels at a third and at two thirds of the ranges, alternating, and as the module sees them
    physical, scaled = np.empty((2, len(labels))), np.empty((2, len(labels)))
    for k, label in enumerate(labels):
        is_log = label.get("transform", "identity") == "log10"
        low, high = (np.log10(label[key]) if is_log else float(label[key]) for key in ("min", "max"))
        seen = low + (high - low) * np.array([1 + k % 2, 2 - k % 2]) / 3
        physical[:, k] = 10**seen if is_log else seen
        scaled[:, k] = (seen - label["mean"]) / label["std"]
    # 2. The module without dropout, which is left as it was
    training = [(part, part.training) for _, part in module.named_modules(remove_duplicate=False)]
    weight = next(iter(module.parameters()))
    if weight.element_size() < 4:
        raise InputError(f"module: {weight.dtype}; convert it first with module.float()", argument="module")
    module.eval()
    try:
        with torch.no_grad():
            found = module(torch.as_tensor(scaled, dtype=weight.dtype, device=weight.device))
            found = found.detach().cpu().float().numpy()
    except Exception as error:
        raise InputError(f"module: it fails for labels (2, {len(labels)}): {error}", argument="module") from error
    finally:
        for part, was_training in training:
            part.training = was_training
    # 3. The spectra
    expected = predict(physical)
    found = np.exp(found) if output == "exp" else found
    largest = np.abs(expected).max()
    if found.shape != expected.shape or not np.abs(found - expected).max() <= TOLERANCE * largest:
        raise InputError(
            "module: it computes another function than the sequence of its layers, such as a residual connection or "
            f"other activations; it differs by more than {TOLERANCE:g} of the largest value",
            argument="module",
        )
