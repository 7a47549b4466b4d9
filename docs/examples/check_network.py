"""Makes a network of random weights, converts it, and lets popfit recover labels from spectra of it.

Usage: check_network.py POPFIT

Needs numpy, scipy and safetensors. Exits with 1 when the two converters do not agree, when a network that is taken to
another grid gives other spectra, when popfit refuses the network or the spectra, or when the fitted labels are not the
true ones within their errors.
"""

import csv
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from scipy.interpolate import CubicSpline
from scipy.ndimage import gaussian_filter1d

from from_numpy import write_emulator
from from_pytorch import dense_layers
from to_log_grid import to_log_grid

LIGHT = 299792.458  # km/s
SPECTRA = 64
NOISE = 0.01  # of the continuum
LABELS = [
    {"name": "teff", "unit": "K", "transform": "log10", "mean": 3.72, "std": 0.08, "min": 4000.0, "max": 7000.0},
    {"name": "logg", "unit": "dex", "transform": "identity", "mean": 3.0, "std": 1.2, "min": 1.0, "max": 5.0},
    {"name": "feh", "unit": "dex", "transform": "identity", "mean": -1.0, "std": 0.9, "min": -2.5, "max": 0.5},
]
MODEL = """
[[arm]]
name = "b"
emulator = "{emulator}"

[continuum]
kind = "chebyshev"
terms = 5

[velocity]
range = [-500.0, 500.0]
"""


def random_network(random, wavelength):
    """Two hidden layers of 16 units; the template is smooth over a few pixels, as a resolved spectrum is."""
    sizes = [len(LABELS), 16, 16, len(wavelength)]
    layers = [(random.normal(size=(m, n)) / np.sqrt(n), 0.3 * random.normal(size=m)) for n, m in zip(sizes, sizes[1:])]
    return layers[:-1] + [tuple(0.6 * gaussian_filter1d(array, 4.0, axis=0) for array in layers[-1])]


def template(layers, labels):
    """The forward pass: scaled labels, SiLU after the hidden layers, exp after the output layer."""
    pairs = zip(labels, LABELS)
    value = np.array([((np.log10(x) if of["transform"] == "log10" else x) - of["mean"]) / of["std"] for x, of in pairs])
    for weight, bias in layers[:-1]:
        value = weight @ value + bias
        value = value / (1.0 + np.exp(-value))
    weight, bias = layers[-1]
    return np.exp(weight @ value + bias)


def make_spectra(random, layers, wavelength, path):
    """Draws labels and velocities, and writes noisy spectra of them with a bent continuum; returns the truth."""
    pixels = np.linspace(wavelength[0] * 1.003, wavelength[-1] * 0.997, 1200)
    x = np.linspace(-1.0, 1.0, len(pixels))
    truth, flux = [], []
    for _ in range(SPECTRA):
        labels = [label["min"] + random.uniform(0.15, 0.85) * (label["max"] - label["min"]) for label in LABELS]
        velocity = random.uniform(-150.0, 150.0)
        rest = pixels * np.sqrt((1.0 - velocity / LIGHT) / (1.0 + velocity / LIGHT))
        slope, bend = random.uniform(-0.3, 0.3), random.uniform(-0.1, 0.1)
        continuum = random.uniform(50.0, 500.0) * (1.0 + slope * x + bend * x**2)
        model = continuum * CubicSpline(wavelength, template(layers, labels))(rest)
        flux.append(model + NOISE * np.abs(model) * random.normal(size=len(pixels)))
        truth.append([velocity, *labels])
    flux = np.array(flux)
    np.savez(path, wavelength=pixels, flux=flux, ivar=1.0 / (NOISE * flux) ** 2, id=np.arange(SPECTRA))
    return np.array(truth)


def check_log_grid(random):
    """Takes a network on a grid that is uniform in λ to one that is uniform in ln λ; the spectra stay what they were."""
    linear = np.linspace(5000.0, 5300.0, 1500)
    layers = random_network(random, linear)
    grid, weight, bias = to_log_grid(linear, *layers[-1])
    steps = np.diff(np.log(grid))
    if np.ptp(steps) > 1e-6 * steps[0] or len(grid) < len(linear):
        sys.exit("the grid of to_log_grid.py is not uniform in ln λ, or coarser than the old one")
    labels = [5500.0, 3.0, -0.5]
    before, after = template(layers, labels), template(layers[:-1] + [(weight, bias)], labels)
    difference = np.abs(CubicSpline(grid, after)(linear) / before - 1.0).max()
    print(f"to_log_grid.py: {len(linear)} to {len(grid)} pixels, fluxes differ by at most {difference:.1e}")
    if difference > 1e-3:
        sys.exit("the network on the other grid gives other spectra")


class Tensor:
    """A numpy array in the place of a torch tensor."""

    def __init__(self, array):
        self.array = array

    def detach(self):
        return self

    def cpu(self):
        return self.array


def state_dict(layers):
    """What a torch Sequential of Linear and SiLU has as its state."""
    state = {}
    for k, (weight, bias) in enumerate(layers):
        state[f"{2 * k}.weight"], state[f"{2 * k}.bias"] = Tensor(weight), Tensor(bias)
    return state


def run(folder, popfit, *arguments):
    print("$ popfit", *arguments, flush=True)
    done = subprocess.run([popfit, *arguments], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}")


def main():
    popfit = Path(shutil.which(sys.argv[1]) or sys.argv[1]).resolve()
    random = np.random.default_rng(7)
    check_log_grid(np.random.default_rng(8))
    wavelength = np.geomspace(5000.0, 5300.0, 1500)
    layers = random_network(random, wavelength)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_emulator(folder / "numpy.safetensors", layers, LABELS, wavelength)
        write_emulator(folder / "torch.safetensors", dense_layers(state_dict(layers)), LABELS, wavelength)
        of_numpy, of_torch = (load_file(folder / f"{name}.safetensors") for name in ("numpy", "torch"))
        if any(not np.array_equal(of_numpy[name], of_torch[name]) for name in of_numpy.keys() | of_torch.keys()):
            sys.exit("the two converters do not agree")
        (folder / "model.toml").write_text(MODEL.format(emulator="numpy.safetensors"))
        truth = make_spectra(random, layers, wavelength, folder / "spectra.npz")
        run(folder, popfit, "check", "model.toml")
        run(folder, popfit, "fit", "model.toml", "spectra.npz", "-o", "results.csv", "--device", "cpu")
        with (folder / "results.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    names = ["velocity", *(label["name"] for label in LABELS)]
    if not all(int(row["status"]) > 0 for row in rows) or len(rows) != SPECTRA:
        sys.exit("not every fit converged")
    found = np.array([[float(row[name]) for name in names] for row in rows])
    errors = np.array([[float(row[f"{name}_err"]) for name in names] for row in rows])
    pulls = (found - truth) / errors
    for name, error, pull in zip(names, errors.T, pulls.T):
        mean, deviation = pull.mean(), pull.std()
        print(f"{name:9} median error {np.median(error):8.4f}, (found - true)/error: {mean:5.2f} +- {deviation:.2f}")
    spread = np.sqrt(np.mean(pulls**2))
    if not (np.isfinite(pulls).all() and np.abs(pulls).max() < 5.0 and 0.8 < spread < 1.2):
        sys.exit(f"the labels are off: rms {spread:.2f}, largest {np.abs(pulls).max():.1f} errors")
    print(f"all {SPECTRA} spectra: labels and velocities come back within their errors")


if __name__ == "__main__":
    main()
