"""Writes a PyTorch network of Linear layers as popfit's emulator file.

Usage: from_pytorch.py STATE.pt WAVELENGTH.npy LABELS.json OUT.safetensors

STATE.pt is what `torch.save(model.state_dict(), "STATE.pt")` wrote. WAVELENGTH.npy holds vacuum Angstroms. LABELS.json
is that of from_numpy.py, which must lie beside this file.
"""

import json
import sys

import numpy as np

from from_numpy import write_emulator


def dense_layers(state):
    """Returns weight and bias of every Linear layer, in the order in which the network registered them."""
    arrays = {name: np.asarray(tensor.detach().cpu()) for name, tensor in state.items()}
    names = [name.removesuffix("weight") for name, array in arrays.items() if name.endswith("weight")]
    other = set(arrays) - {name + part for name in names for part in ("weight", "bias")}
    if other or any(arrays[name + "weight"].ndim != 2 for name in names):
        raise ValueError("only Linear layers can be converted: fold batch norms, and drop what inference does not use")
    no_bias = {name: np.zeros(len(arrays[name + "weight"])) for name in names}
    return [(arrays[name + "weight"], arrays.get(name + "bias", no_bias[name])) for name in names]


def main():
    import torch

    state, wavelength, description, output = sys.argv[1:]
    layers = dense_layers(torch.load(state, map_location="cpu", weights_only=True))
    with open(description, encoding="utf-8") as file:
        write_emulator(output, layers, wavelength=np.load(wavelength), **json.load(file))


if __name__ == "__main__":
    main()
