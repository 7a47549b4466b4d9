"""Models and networks of Python, and the devices, command and versions."""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import sys
from collections.abc import Iterator
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


class Tensor:
    """Values of numpy with the methods of a tensor of PyTorch that are used."""

    def __init__(self, values: Any) -> None:
        self.values = None if values is None else np.asarray(values)
        self.dtype, self.device = np.dtype(np.float64), "cpu"

    def element_size(self) -> int:
        return self.dtype.itemsize

    def detach(self) -> Tensor:
        return self

    cpu = float = detach

    def numpy(self) -> Any:
        return self.values


class Module:
    """What popfit uses of torch.nn.Module."""

    def __init__(self, *leaves: Module, **attributes: Any) -> None:
        self.leaves, self.training = leaves, True
        vars(self).update(attributes)

    def children(self) -> list[Module]:
        return list(dict.fromkeys(self.leaves))

    def named_modules(self, *, remove_duplicate: bool) -> list[tuple[str, Module]]:
        assert not remove_duplicate
        return [("", self), *(named for leaf in self.leaves for named in leaf.named_modules(remove_duplicate=False))]

    def parameters(self) -> Iterator[Tensor]:
        return (leaf.weight for leaf in self.leaves if isinstance(leaf, KINDS["Linear"]))

    def eval(self) -> None:
        for _, part in self.named_modules(remove_duplicate=False):
            part.training = False

    def __call__(self, x: Tensor) -> Tensor:
        for leaf in self.leaves:
            x = leaf(x)
        return x


KINDS: dict[str, Any] = {
    name: type(name, (Module,), {})
    for name in ("Linear", "SiLU", "Conv1d", "ReLU", "Dropout", "Identity", "GELU", "LeakyReLU", "Sequential")
}


def call_linear(layer: Any, x: Tensor) -> Tensor:
    return Tensor(x.values @ layer.weight.values.T + (0.0 if layer.bias is None else layer.bias.values))


def call_dropout(layer: Module, x: Tensor) -> Tensor:
    return Tensor(np.nan * x.values) if layer.training else x


KINDS["Linear"].__call__ = call_linear
KINDS["SiLU"].__call__ = lambda layer, x: Tensor(x.values / (1.0 + np.exp(-x.values)))
KINDS["Dropout"].__call__ = call_dropout


def linear_layers(parts: dict[str, Any]) -> list[Any]:
    """Return the linear layers of weights and biases."""
    pairs = zip(parts["weights"], parts["biases"], strict=True)
    return [KINDS["Linear"](weight=Tensor(weight), bias=Tensor(bias)) for weight, bias in pairs]


def from_torch(parts: dict[str, Any], module: Any, **settings: Any) -> popfit.Emulator:
    return popfit.Emulator.from_torch(module, parts["labels"], wavelength=parts["wavelength"], **settings)


def test_modules_of_pytorch_become_networks() -> None:
    parts = layers()
    first, last = linear_layers(parts)
    module = KINDS["Sequential"](first, KINDS["SiLU"](), KINDS["Dropout"](), KINDS["Identity"](), last)
    emulator = from_torch(parts, module)
    same = popfit.Emulator.from_layers(**parts, activation="silu")
    np.testing.assert_array_equal(emulator.spectra([5000.0, 0.0]), same.spectra([5000.0, 0.0]))
    gelu = from_torch(parts, KINDS["Sequential"](first, KINDS["GELU"](approximate="none"), last))
    assert not np.array_equal(gelu.spectra([5000.0, 0.0]), same.spectra([5000.0, 0.0]))
    parts["weights"].insert(1, np.eye(8))
    parts["biases"].insert(1, np.zeros(8))
    first, middle, last = linear_layers(parts)
    silu = KINDS["SiLU"]()
    twice = from_torch(parts, KINDS["Sequential"](first, silu, middle, silu, last))
    same = popfit.Emulator.from_layers(**parts, activation="silu")
    np.testing.assert_array_equal(twice.spectra([5000.0, 0.0]), same.spectra([5000.0, 0.0]))


def test_modules_of_another_form_are_refused() -> None:
    parts = layers()
    first, last = linear_layers(parts)
    square = KINDS["Linear"](weight=Tensor(np.eye(8)), bias=None)
    silu = KINDS["SiLU"]()
    for leaves, text in [
        ((first, silu, KINDS["Conv1d"](), last), "Conv1d"),
        ((first, silu, square, KINDS["ReLU"](), last), "one kind"),
        ((first, silu, last, silu), "Linear, SiLU, Linear, SiLU"),
        ((first, square, silu, last), "Linear, Linear, SiLU, Linear"),
        ((silu, first, silu, last), "SiLU, Linear, SiLU, Linear"),
        ((first, silu, silu, last), "Linear, SiLU, SiLU, Linear"),
        ((first, last), "one kind"),
        ((), "Sequential"),
        ((first, KINDS["GELU"](approximate="tanh"), last), "approximate"),
        ((first, KINDS["LeakyReLU"](negative_slope=0.2), last), "slope"),
    ]:
        with pytest.raises(popfit.InputError, match=text) as caught:
            from_torch(parts, KINDS["Sequential"](*leaves))
        assert caught.value.argument == "module"
    with pytest.raises(popfit.InputError, match="int") as caught:
        from_torch(parts, 5)
    assert caught.value.argument == "module"


class Residual(Module):
    """A module with the layers of a sequence, but another function."""

    def __call__(self, x: Tensor) -> Tensor:
        return Tensor(super().__call__(x).values + 0.01 * x.values.sum())


class Failing(Module):
    def __call__(self, x: Tensor) -> Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a module in the place of PyTorch, with which modules are evaluated."""
    import contextlib
    import types

    module: Any = types.ModuleType("torch")
    module.nn = types.SimpleNamespace(Module=Module)
    module.no_grad = contextlib.nullcontext
    module.as_tensor = lambda values, dtype, device: Tensor(np.asarray(values, dtype=dtype))
    monkeypatch.setitem(sys.modules, "torch", module)


@pytest.mark.parametrize("output", ["identity", "exp"])
@pytest.mark.usefixtures("torch")
def test_networks_predict_what_their_modules_do(output: str) -> None:
    parts = layers()
    first, last = linear_layers(parts)
    leaves = (first, KINDS["SiLU"](), KINDS["Dropout"](), last)
    module = KINDS["Sequential"](*leaves)
    leaves[1].training = False  # dropout is on, the activation is not in training
    from_torch(parts, module, output=output)
    assert [part.training for part in (module, *leaves)] == [True, True, False, True, True]
    for wrong, text in [(Residual(*leaves), "another function"), (Failing(*leaves), "mat1")]:
        with pytest.raises(popfit.InputError, match=text) as caught:
            from_torch(parts, wrong, output=output)
        assert caught.value.argument == "module" and wrong.training
    first.weight.dtype = np.dtype(np.float16)
    with pytest.raises(popfit.InputError, match=r"float16; convert it first with module.float\(\)"):
        from_torch(parts, module, output=output)


def test_layers_of_wrong_shapes_and_types_are_named() -> None:
    from astropy import units

    for name, change, text in [
        ("weights", lambda w: [w[0].T, w[1]], r"weights[0] has the shape (2, 8), not (8, 2)"),
        ("weights", lambda w: [w[0], w[1].T], r"weights[1] has the shape (8, 40), not (40, 8)"),
        ("weights", lambda w: [w[0], w[1].ravel()], r"weights[1] has the shape (320,), not (40, 8)"),
        ("weights", lambda w: [w[0] + 0j, w[1]], "weights[0]: complex128; give real numbers"),
        ("weights", lambda w: [w[0].astype(str), w[1]], "weights[0]: texts; give real numbers"),
        ("weights", lambda w: 5, "weights: int; give"),
        ("biases", lambda b: [b[0], b[1].astype(object)], "biases[1]: Python objects; give real numbers"),
        ("biases", lambda b: [b[0][:, None], b[1]], "biases[0] has the shape (8, 1)"),
        ("biases", lambda b: b[:1], "biases: 1, but there are 2 weights"),
        ("wavelength", lambda w: w[None], "wavelength has the shape (1, 40)"),
        ("wavelength", lambda w: w.astype(str), "wavelength: texts"),
        ("labels", lambda labels: ["teff", "feh"], "labels: str"),
        ("labels", lambda labels: [labels[0], labels[1] | {"std": "wide"}], "labels: feh: std: 'wide'"),
    ]:
        parts = layers()
        parts[name] = change(parts[name])
        with pytest.raises(popfit.InputError, match=re.escape(text)) as caught:
            popfit.Emulator.from_layers(**parts, activation="silu")
        assert caught.value.argument == name
    with pytest.raises(popfit.InputError, match="activation"):
        popfit.Emulator.from_layers(**layers(), activation=None)  # type: ignore[arg-type]
    parts = layers()
    reference = popfit.Emulator.from_layers(**parts, activation="silu")
    parts["wavelength"] = parts["wavelength"] / 10 * units.nm
    parts["weights"] = [weight.tolist() for weight in parts["weights"]]
    again = popfit.Emulator.from_layers(**parts, activation="silu")
    np.testing.assert_allclose(again.wavelength, reference.wavelength, rtol=1e-14)
    np.testing.assert_array_equal(again.spectra([5000.0, 0.0]), reference.spectra([5000.0, 0.0]))
    parts["wavelength"] = parts["wavelength"].value * units.K
    with pytest.raises(units.UnitConversionError):
        popfit.Emulator.from_layers(**parts, activation="silu")


def test_values_of_models_may_be_of_numpy_and_astropy() -> None:
    from astropy import units

    network = popfit.Emulator.open(NETWORK)
    km_s = units.km / units.s

    def text(**settings: Any) -> str:
        return popfit.SpectralModel({"b": network}, **settings).text

    for name in ("velocity", "vsini"):
        for value in (np.float32(12.0), np.int64(12), 12 * km_s, 12_000 * units.m / units.s, {"fixed": 12 * km_s}):
            assert text(**{name: value}) == text(**{name: 12.0}), value
        for pair in (
            np.array([0, 100]),
            [0, np.float32(100)],
            [0, 100] * km_s,
            (0 * km_s, 1e5 * units.m / units.s),
            {"range": (0 * km_s, 100 * km_s)},
            {"range": [0, 100] * km_s},
        ):
            assert text(**{name: pair}) == text(**{name: (0.0, 100.0)}), pair
    assert text(labels={"teff": 5000}) == text(labels={"teff": {"fixed": 5000.0}})
    assert text(labels={"teff": np.float64(5000) * units.K}) == text(labels={"teff": {"fixed": 5000.0}})
    assert text(labels={"teff": {"bounds": [4, 5] * units.kK}}) == text(labels={"teff": {"bounds": [4000.0, 5000.0]}})
    angstrom = units.Angstrom
    for mask in (
        (4300, 4400),
        [(4300, 4400)],
        np.array([4300, 4400]),
        (4300, 4400) * angstrom,
        [(4300, 4400) * angstrom],
        [(4300 * angstrom, 4400 * angstrom)],
    ):
        assert text(mask=mask) == text(mask=[(4300.0, 4400.0)]), mask
    written = re.search(r"mask = \[\[(.*)\]\]", text(mask=(0.5, 0.8) * units.um))
    assert written is not None
    np.testing.assert_allclose([float(number) for number in written[1].split(",")], [5000.0, 8000.0])
    assert text(mask=np.array([[4300, 4400], [4500, 4600]])) == text(mask=[(4300.0, 4400.0), (4500.0, 4600.0)])
    assert text(continuum=np.int64(7)) == text(continuum=7) == text(continuum={"terms": 7})
    with pytest.raises(units.UnitConversionError):
        text(velocity=5 * units.K)


def test_wrong_values_of_models_are_named_with_what_to_give() -> None:
    from astropy import units

    network = popfit.Emulator.open(NETWORK)
    for name, value, text in [
        ("velocity", "12", "velocity: '12'; give"),
        ("velocity", True, "velocity: True; give"),
        ("velocity", (1, 2, 3), "velocity: (1, 2, 3); give"),
        ("velocity", ("a", 2), "velocity: ('a', 2); give"),
        ("velocity", float("nan"), "velocity: nan; give"),
        ("vsini", 3 + 0j, "vsini: (3+0j); give"),
        ("continuum", 5.7, "continuum: 5.7; give"),
        ("continuum", True, "continuum: True; give"),
        ("continuum", 0, "continuum: 0; give"),
        ("continuum", [], "continuum: []; give"),
        ("labels", {"teff": "hot"}, "labels: teff: 'hot'; give"),
        ("labels", {"teff": True}, "labels: teff: True; give"),
        ("labels", [("teff", 5000)], "labels: list; give"),
        ("marginalise", "yes", "marginalise: 'yes'; give True or False"),
        ("mask", (4300,), "mask: 4300; give"),
        ("mask", (4300, 4400, 4500), "mask: 4300; give"),
        ("mask", 5, "mask: 5; give"),
        ("mask", "ab", "mask: 'ab'; give"),
        ("error_floor", "a", "error_floor: 'a'; give"),
        ("jitter", "fitted", "jitter: 'fitted'; give a number, or \"fit\""),
    ]:
        with pytest.raises(popfit.InputError, match=re.escape(text)) as caught:
            popfit.SpectralModel({"b": network}, **{name: value})
        assert caught.value.argument == name
    with pytest.raises(popfit.InputError, match="Quantity"):
        popfit.SpectralModel({"b": network}, continuum={"terms": 5 * units.km})
    with pytest.raises(popfit.InputError, match="seed: True") as caught:
        popfit.SpectralModel({"b": network}).guess(popfit.demo_data()[1], seed=True)
    assert caught.value.argument == "seed"


def test_errors_that_are_too_small_are_enlarged() -> None:
    network = popfit.Emulator.open(NETWORK)
    arrays = dict(np.load(ROOT / "data" / "spectra.npz"))
    model = popfit.SpectralModel({"b": network}, velocity=(-500, 500), continuum=10, jitter="fit")
    fits = {factor: popfit.fit(model, {**arrays, "ivar": factor**2 * arrays["ivar"]}) for factor in (3.0, 1.0)}
    enlarged = np.median(fits[3.0]["error_factor"] ** 2 + (fits[3.0]["jitter"] > 0))
    assert 7 < enlarged < 11
    ratio = fits[3.0]["teff_err"] / fits[1.0]["teff_err"]
    assert abs(np.nanmedian(ratio) - 1) < 0.05
    assert "jitter" not in popfit.fit(*popfit.demo_data()).columns


def test_networks_of_arms_may_be_paths() -> None:
    network = popfit.Emulator.open(NETWORK)
    for arms in (NETWORK, str(NETWORK)):
        assert popfit.SpectralModel(arms).text == popfit.SpectralModel(network).text
    for arms in ({"b": NETWORK}, {"b": {"emulator": str(NETWORK)}}, {"b": {"name": "b", "emulator": network}}):
        assert popfit.SpectralModel(arms).text == popfit.SpectralModel({"b": network}).text
    with pytest.raises(FileNotFoundError, match="nothing"):
        popfit.SpectralModel({"b": "nothing.safetensors"})
    for arms, text in [
        ([network], "arms: list; give"),
        (5, "arms: int; give"),
        ({1: network}, "arms: 1"),
        ({}, "arms: none"),
        ({"b": 5}, "arm 'b': int; give"),
        ({"b": {"emulator": 5}}, "arm 'b': int; give"),
        ({"b": {"lsf": 2.0}}, "arm 'b': no emulator; give"),
        ({"b": {"name": "r", "emulator": network}}, "arm 'b': its name is 'r'"),
    ]:
        with pytest.raises(popfit.InputError, match=re.escape(text)) as caught:
            popfit.SpectralModel(arms)  # type: ignore[arg-type]
        assert caught.value.argument == "arms"
    model = popfit.SpectralModel({"b": network})
    assert model.with_arms("b").text == model.with_arms(["b"]).text
    for call, argument in [
        (lambda: model.with_arms(5), "names"),  # type: ignore[arg-type]
        (lambda: model.with_arms([5]), "names"),  # type: ignore[list-item]
        (lambda: popfit.SpectralModel.from_toml(5), "text"),  # type: ignore[arg-type]
        (lambda: popfit.SpectralModel.from_dict([]), "keys"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(popfit.InputError, match=f"{argument}: .*; give") as caught:
            call()
        assert caught.value.argument == argument
    for keys, text in [({"arm": "b"}, "arm: str"), ({"arm": [network]}, "arm: Emulator"), ({"arm": 5}, "arm: int")]:
        with pytest.raises(popfit.InputError, match=text):
            popfit.SpectralModel.from_dict(keys)


def test_faults_of_models_are_named() -> None:
    network = popfit.Emulator.open(NETWORK)
    for settings, text, argument in [
        ({"velocity": (100.0, -100.0)}, "velocity", "bounds"),
        ({"continuum": "spline"}, "continuum", "continuum.kind"),
        ({"labels": {"teff": {"bound": [1, 2]}}}, "bounds", "labels.teff.bound"),
        ({"labels": {"tef": {"fixed": 5000.0}}}, "tef", "labels"),
        ({"vsini": -1.0}, "vsini", "vsini.fixed"),
    ]:
        with pytest.raises(popfit.InputError, match=text) as caught:
            popfit.SpectralModel({"b": network}, **settings)
        assert caught.value.argument == argument
    with pytest.raises(popfit.InputError, match="did you mean"):
        popfit.SpectralModel.from_dict({"arm": [{"name": "b", "emulator": network}], "velocty": {"fixed": 0.0}})
    with pytest.raises(popfit.InputError, match="name, min, max"):
        parts = layers()
        parts["labels"][0]["range"] = (0, 1)
        popfit.Emulator.from_layers(**parts, activation="silu")


def test_predictions_are_those_of_the_fit(demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]) -> None:
    spectra = popfit.spectra.as_spectra(demo_arrays)[:4]
    table = popfit.fit(demo_model, spectra, device="cpu")
    arm = demo_model.fitted(spectra, table)["b"]
    with pytest.raises(popfit.InputError, match=r"model.fitted\(spectra, table\) takes one"):
        demo_model.predict(spectra, table)  # type: ignore[arg-type]
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


def test_a_driver_without_a_manifest_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # popfit.devices is a function
    devices = sys.modules["popfit.devices"]
    monkeypatch.setattr(devices._popfit, "driver_to_add", lambda: "/cache/nvidia_icd.json")
    for earlier, all_of_them in [(None, "/cache/nvidia_icd.json"), ("/own.json", "/own.json:/cache/nvidia_icd.json")]:
        monkeypatch.delenv("VK_ADD_DRIVER_FILES", raising=False)
        if earlier:
            monkeypatch.setenv("VK_ADD_DRIVER_FILES", earlier)
        devices.name_missing_driver.cache_clear()
        devices.name_missing_driver()
        devices.name_missing_driver()
        assert os.environ["VK_ADD_DRIVER_FILES"] == all_of_them
    devices.name_missing_driver.cache_clear()


def test_devices_say_why_a_gpu_is_missing() -> None:
    found = popfit.devices()
    assert found[0].selector == "cpu" and found.auto in {"cpu", *(device.selector for device in found)}
    assert found.auto_reason
    text = "import popfit; found = popfit.devices(); print([d.selector for d in found], found.notes)"
    import os
    import subprocess

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


def test_messages_name_no_file_that_is_not_there(demo_model: popfit.SpectralModel) -> None:
    network = popfit.Emulator.open(NETWORK)
    with pytest.raises(popfit.InputError, match=r"^`velocity.range`: 500 to -500 is not an interval"):
        popfit.SpectralModel({"b": network}, velocity=(500, -500))
    with pytest.raises(popfit.InputError, match=r"^model: `continuum.kind` must be"):
        popfit.SpectralModel({"b": network}, continuum="spline")
    with pytest.raises(popfit.InputError, match=r"^model: no emulator has a label `Teff`"):
        popfit.SpectralModel({"b": network}, labels={"Teff": 5000})
    # lines of the user's own text are named
    text = demo_model.text.replace("[velocity]", "[velocty]")
    with pytest.raises(popfit.InputError, match=r"^model: line \d+: unknown key `velocty`"):
        popfit.SpectralModel.from_toml(text, emulators={"b": network})


def test_ranges_of_labels_are_pairs() -> None:
    network = popfit.Emulator.open(NETWORK)
    model = popfit.SpectralModel({"b": network}, labels={"teff": (4000, 5000), "logg": np.array([1.0, 4.0])})
    assert model.bounds["teff"] == (4000.0, 5000.0) and model.bounds["logg"] == (1.0, 4.0)


def test_labels_beyond_the_training_range_are_told() -> None:
    network = popfit.Emulator.open(NETWORK)
    inside = [(low + high) / 2 for low, high in network.labels.values()]
    network.spectra(inside)
    with pytest.warns(popfit.PopfitWarning, match=r"labels: teff = 3.7 is beyond the network's training range"):
        network.spectra([3.7, *inside[1:]])


def test_a_network_without_wavelengths_is_shown(tmp_path: pathlib.Path) -> None:
    # The Payne's files have none
    sizes = [(3, 2), (3, 3), (20, 3)]
    arrays = {f"w_array_{k}": np.ones(size) for k, size in enumerate(sizes)}
    arrays |= {f"b_array_{k}": np.zeros(size[0]) for k, size in enumerate(sizes)}
    np.savez(tmp_path / "payne.npz", **arrays, x_min=np.zeros(2), x_max=np.ones(2))  # type: ignore[arg-type,unused-ignore]
    assert "no wavelengths" in repr(popfit.Emulator.open(tmp_path / "payne.npz"))
