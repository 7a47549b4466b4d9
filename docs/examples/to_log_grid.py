"""Takes a network from any increasing wavelength grid to one that is uniform in ln λ, as popfit needs it.

Usage: to_log_grid.py NETWORK.npz OUT.npz

NETWORK.npz is that of from_numpy.py: `weight_0`, `bias_0`, `weight_1`, ..., and `wavelength` in vacuum Angstroms. The last
weight and bias, which have one row for each pixel, are interpolated.
"""

import sys

import numpy as np
from scipy.interpolate import CubicSpline


def to_log_grid(wavelength, weight, bias):
    """Returns wavelength, weight and bias of the output layer on a grid that is uniform in ln λ."""
    x = np.log(wavelength)
    grid = np.linspace(x[0], x[-1], 1 + int(np.ceil((x[-1] - x[0]) / np.diff(x).min())))
    return np.exp(grid), CubicSpline(x, weight)(grid), CubicSpline(x, bias)(grid)


def main():
    network, output = sys.argv[1:]
    arrays = dict(np.load(network))
    last = sum(name.startswith("weight_") for name in arrays) - 1
    names = ("wavelength", f"weight_{last}", f"bias_{last}")
    arrays.update(zip(names, to_log_grid(*(arrays[name] for name in names))))
    np.savez(output, **arrays)


if __name__ == "__main__":
    main()
