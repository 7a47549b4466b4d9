"""Writes a dense network as popfit's emulator file.

Usage: from_numpy.py NETWORK.npz LABELS.json OUT.safetensors

NETWORK.npz holds `weight_0` (outputs, inputs), `bias_0` (outputs), `weight_1`, ..., and `wavelength` (pixels) in vacuum
Angstroms. LABELS.json holds {"activation": "silu", "output": "exp", "labels": [...]} as the manual describes them.
"""

import json
import sys

import numpy as np
from safetensors.numpy import save_file


def write_emulator(path, layers, labels, wavelength, activation="silu", output="exp"):
    """Writes `layers`, pairs of weight (outputs, inputs) and bias (outputs), the output layer last."""
    tensors = {"wavelength": np.ascontiguousarray(wavelength, dtype=np.float64)}
    for k, (weight, bias) in enumerate(layers):
        tensors[f"layer.{k}.weight"] = np.ascontiguousarray(weight, dtype=np.float32)
        tensors[f"layer.{k}.bias"] = np.ascontiguousarray(bias, dtype=np.float32)
    # `labels` is in the order of the network's inputs, which are z = (transform(x) - mean) / std
    network = {"version": 1, "activation": activation, "output": output, "medium": "vacuum", "labels": labels}
    save_file(tensors, path, metadata={"popfit": json.dumps(network)})


def main():
    network, description, output = sys.argv[1:]
    arrays = np.load(network)
    count = sum(name.startswith("weight_") for name in arrays.files)
    layers = [(arrays[f"weight_{k}"], arrays[f"bias_{k}"]) for k in range(count)]
    with open(description, encoding="utf-8") as file:
        write_emulator(output, layers, wavelength=arrays["wavelength"], **json.load(file))


if __name__ == "__main__":
    main()
