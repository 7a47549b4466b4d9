"""Models and networks of Python, and the devices, command and versions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, run_python

import popfit

NETWORK = ROOT / "data" / "emulator.safetensors"


def layers(seed: int = 1, pixels: int = 40) -> dict[str, Any]:
    """Return labels, weights, biases and wavelengths of a small random network."""
    rng = np.random.default_rng(seed)
    labels = [
        {"name": "teff", "unit": "K", "transform": "log10", "min": 4000, "max": 7000, "mean": 3.7, "std": 0.1},
        {"name": "feh", "min": -2.0, "max": 0.5, "mean": -0.7, "std": 0.8},
    ]
    sizes = [2, 8, pixels]
    weights = [rng.normal(size=(out, inputs)) / np.sqrt(inputs) for inputs, out in itertools.pairwise(sizes)]
    biases = [rng.normal(size=out) for out in sizes[1:]]
    wavelength = 5000.0 * np.exp(1e-4 * np.arange(pixels))
    return {"labels": labels, "weights": weights, "biases": biases, "wavelength": wavelength}


def test_layers_predict_what_numpy_does() -> None:
    parts = layers()
    emulator = popfit.Emulator.from_layers(**parts, activation="tanh", output="exp")
    teff, feh = 5500.0, -0.3
    z = np.array([(np.log10(teff) - 3.7) / 0.1, (feh + 0.7) / 0.8])
    hidden = np.tanh(parts["weights"][0] @ z + parts["biases"][0])
    expected = np.exp(parts["weights"][1] @ hidden + parts["biases"][1])
    np.testing.assert_allclose(emulator.spectra([teff, feh]), expected, rtol=2e-5)
    assert emulator.spectra([[teff, feh]] * 3).shape == (3, 40)
    assert emulator.labels == {"teff": (4000.0, 7000.0), "feh": (-2.0, 0.5)}
    with pytest.raises(popfit.InputError, match="2 labels"):
        emulator.spectra([1.0, 2.0, 3.0])


def test_files_and_pickles_bring_networks_back(tmp_path: Any) -> None:
    import pickle

    emulator = popfit.Emulator.from_layers(**layers(), activation="silu")
    path = tmp_path / "net.safetensors"
    emulator.write(path)
    with pytest.raises(FileExistsError):
        emulator.write(path)
    for again in (popfit.Emulator.open(path), pickle.loads(pickle.dumps(emulator))):
        np.testing.assert_array_equal(again.spectra([5000.0, 0.0]), emulator.spectra([5000.0, 0.0]))
        np.testing.assert_array_equal(again.wavelength, emulator.wavelength)


def test_modules_of_pytorch_become_networks() -> None:
    parts = layers()

    class Layer:
        def __init__(self, weight: Any = None, bias: Any = None) -> None:
            self.weight, self.bias = Tensor(weight), Tensor(bias)

        def children(self) -> list[Any]:
            return []

    class Tensor:
        def __init__(self, values: Any) -> None:
            self.values = values

        def detach(self) -> Tensor:
            return self

        cpu = detach

        def numpy(self) -> Any:
            return self.values

    kinds = {name: type(name, (Layer,), {}) for name in ("Linear", "SiLU", "Conv1d", "ReLU", "Dropout")}

    class Sequential:
        def __init__(self, *leaves: Any) -> None:
            self.leaves = leaves

        def modules(self) -> list[Any]:
            return [self, *self.leaves]

        def children(self) -> list[Any]:
            return list(self.leaves)

    linear = [kinds["Linear"](weight, bias) for weight, bias in zip(parts["weights"], parts["biases"], strict=True)]
    module = Sequential(linear[0], kinds["SiLU"](), kinds["Dropout"](), linear[1])
    emulator = popfit.Emulator.from_torch(module, parts["labels"], wavelength=parts["wavelength"])
    same = popfit.Emulator.from_layers(**parts, activation="silu")
    np.testing.assert_array_equal(emulator.spectra([5000.0, 0.0]), same.spectra([5000.0, 0.0]))
    for wrong, text in [(kinds["Conv1d"](), "Conv1d"), (kinds["ReLU"](), "one kind")]:
        broken = Sequential(linear[0], kinds["SiLU"](), wrong, linear[1])
        with pytest.raises(popfit.InputError, match=text):
            popfit.Emulator.from_torch(broken, parts["labels"], wavelength=parts["wavelength"])


def test_faults_of_models_are_named() -> None:
    network = popfit.Emulator.open(NETWORK)
    for settings, text in [
        ({"velocity": (100.0, -100.0)}, "velocity"),
        ({"continuum": "spline"}, "continuum"),
        ({"labels": {"teff": {"bound": [1, 2]}}}, "bounds"),
        ({"labels": {"tef": {"fixed": 5000.0}}}, "tef"),
        ({"vsini": -1.0}, "vsini"),
    ]:
        with pytest.raises(popfit.InputError, match=text):
            popfit.SpectralModel({"b": network}, **settings)
    with pytest.raises(popfit.InputError, match="did you mean"):
        popfit.SpectralModel.from_dict({"arm": [{"name": "b", "emulator": network}], "velocty": {"fixed": 0.0}})
    with pytest.raises(popfit.InputError, match=r"no popfit\.Emulator"):
        popfit.SpectralModel({"b": {"emulator": "net.safetensors"}})
    with pytest.raises(popfit.InputError, match="name, min, max"):
        parts = layers()
        parts["labels"][0]["range"] = (0, 1)
        popfit.Emulator.from_layers(**parts, activation="silu")


def test_predictions_are_those_of_the_fit(demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]) -> None:
    spectra = popfit.spectra.as_spectra(demo_arrays)[:4]
    table = popfit.fit(demo_model, spectra, device="cpu")
    arm = demo_model.fitted(spectra, table)["b"]
    residuals = np.where(arm["mask"], 0.0, (arm["flux"] - arm["model"]) / arm["error"])
    np.testing.assert_allclose((residuals**2).sum(axis=1), table["chi2"], rtol=1e-4)
    parameters = np.stack([table[name] for name in demo_model.parameters], axis=1)
    found = demo_model.objective(spectra, parameters, gradient=True)
    np.testing.assert_allclose(found["objective"], table["objective"], rtol=1e-5)
    step = np.zeros_like(parameters)
    step[:, 1] = 5.0
    plus, minus = (np.asarray(demo_model.objective(spectra, parameters + s)["objective"]) for s in (step, -step))
    curvature = (plus + minus - 2 * np.asarray(found["objective"])) / 25.0
    np.testing.assert_allclose(curvature, 2.0 * np.asarray(found["normal_matrix"])[:, 1, 1], rtol=0.3)
    with pytest.raises(popfit.InputError, match="parameters has the shape"):
        demo_model.predict(spectra, parameters[:2])


def test_guesses_are_near_the_fit(demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]) -> None:
    spectra = popfit.spectra.as_spectra(demo_arrays)[:8]
    table = popfit.fit(demo_model, spectra, device="cpu")
    for guess, velocity in zip(demo_model.guess(spectra), table["velocity"], strict=True):
        assert guess["starts"].shape == (len(guess["chi2"]), 5)
        assert abs(guess["starts"][0, 0] - velocity) < 60.0


def test_devices_say_why_a_gpu_is_missing() -> None:
    found = popfit.devices()
    assert found[0].selector == "cpu" and found.auto in {"cpu", *(device.selector for device in found)}
    assert found.auto_reason
    text = "import popfit; found = popfit.devices(); print([d.selector for d in found], found.notes)"
    import os
    import subprocess
    import sys

    nowhere = {"VK_DRIVER_FILES": "/nonexistent.json", "VK_ICD_FILENAMES": "/nonexistent.json"}
    process = subprocess.run(
        [sys.executable, "-c", text], env={**os.environ, **nowhere}, capture_output=True, text=True, check=True
    )
    assert "'cpu'" in process.stdout and "VK_" in process.stdout
    with pytest.raises(popfit.DeviceError):
        popfit.fit(*popfit.demo_data(), device="gpu:nothing-of-this-name")


def test_the_module_is_the_command(tmp_path: Any) -> None:
    process = run_python("-W", "error", "-m", "popfit", "--version")
    assert process.stdout == f"popfit {popfit.__version__}\n" and process.stderr == ""
    assert popfit.main(["fit", "nothing.toml", "nothing.npz", "-o", str(tmp_path / "out.parquet")]) == 2
    run_python("-m", "popfit", "demo", "--device", "cpu", "--out", tmp_path / "demo")
    assert (tmp_path / "demo" / "results.csv").exists()


def test_versions_and_demo_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    popfit.show_versions()
    assert f"popfit {popfit.__version__}" in capsys.readouterr().out
    table = popfit.demo()
    text = capsys.readouterr().out
    assert len(table) == 64 and "pull" in text and "64 spectra: 64 converged" in text


def test_options_have_the_commands_names_and_defaults() -> None:
    import inspect

    help_text = run_python("-m", "popfit", "fit", "--help").stdout
    other_names = {"max_memory": "--memory", "batch_size": "--batch", "select": "--target-id", "progress": "--quiet"}
    missing = {"timeout", "threads"}
    for name in inspect.signature(popfit.fit_files).parameters:
        if name in ("model", "files", "output") or name in missing:
            continue
        assert other_names.get(name, "--" + name.replace("_", "-")) in help_text, name
