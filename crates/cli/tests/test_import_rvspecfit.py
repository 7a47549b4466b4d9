#!/usr/bin/env python3
"""Tests of import_rvspecfit.py, on checkpoints made here: python3 crates/cli/tests/test_import_rvspecfit.py

With rvspecfit installed, its own network, checkpoint writer, serializer and interpolator make the library and the answers;
without it, the same layout is written with torch and h5py.
"""

import contextlib
import io
import json
import os
import struct
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import import_rvspecfit

try:
    import h5py
    import numpy as np
    import torch
except ImportError as error:
    raise unittest.SkipTest(f"the import needs torch, h5py, numpy and scipy: {error}") from None
try:
    from rvspecfit import serializer, spec_inter
    from rvspecfit.nn import NNInterpolator as nni
except ImportError:
    serializer = spec_inter = nni = None

PIXELS = 37
SIZES = dict(indim=4, width=8, npc=5, npix=PIXELS, nlayers=2, withbn=False)
NAMES = ["teff", "logg", "feh", "alpha"]
LOW, HIGH = np.array([4000.0, 0.5, -2.5, -0.2]), np.array([9000.0, 5.2, 0.5, 0.6])


class TorchNetwork(torch.nn.Module):
    """rvspecfit's layout: names and order of its NNInterpolator."""

    def __init__(self, indim, width, npc, npix, nlayers, withbn, nonlinearity="SiLU"):
        super().__init__()
        self.model = torch.nn.Sequential()
        sizes = [indim] + [width] * (nlayers + 1) + [npc]
        for k, (inputs, outputs) in enumerate(zip(sizes[:-1], sizes[1:])):
            self.model.add_module(f"lin_{k}", torch.nn.Linear(inputs, outputs))
            self.model.add_module(f"nl_{k}", getattr(torch.nn, nonlinearity)())
            if withbn and 0 < k <= nlayers:
                self.model.add_module(f"bn_{k}", torch.nn.BatchNorm1d(outputs))
        self.pc_layer = torch.nn.Linear(npc, npix)

    def forward(self, z):
        return self.pc_layer(self.model(z))


def save_checkpoint(network, path):
    if nni:
        return nni.save_checkpoint(network, path)
    container = {"checkpoint_magic": "rvspecfit.nn_interpolator", "checkpoint_version": 1, "nn_arch_version": 1}
    torch.save({**container, "state_dict": network.state_dict()}, path)


def save_tree(path, tree):
    """What rvspecfit's serializer writes, for the types that occur here."""
    if serializer:
        return serializer.save_dict_to_hdf5(path, tree)

    def put(file, key, value):
        if isinstance(value, dict):
            for name, item in value.items():
                put(file, f"{key}/{name}", item)
        elif isinstance(value, tuple):
            for k, item in enumerate(value):
                put(file, f"{key}/__item_{k}", item)
            file[key].attrs["type"] = "flattened_tuple"
        else:
            kinds = {str: "str", list: "list", np.ndarray: "ndarray"}
            file[key] = value
            file[key].attrs["type"] = kinds.get(type(value), "scalar")

    with h5py.File(path, "w") as file:
        file.attrs["version"] = 1
        for name, item in tree.items():
            put(file, name, item)


def random_network(kwargs):
    """All parameters random, the batch norms' statistics too, so that nothing is the identity."""
    network = (nni.NNInterpolator if nni else TorchNetwork)(**kwargs)
    generator = torch.Generator().manual_seed(1)
    for name, value in network.state_dict().items():
        if value.is_floating_point():
            noise = torch.randn(value.shape, generator=generator) * 0.4
            value.copy_(noise.exp() if "running_var" in name else noise)
    return network.eval()


def make_library(folder, setup="b", nonlinearity="SiLU", withbn=False, changes=None):
    """Writes a library; the network, and the mapper's M and S."""
    rng = np.random.default_rng(2)
    points = np.concatenate([LOW + (HIGH - LOW) * rng.random((50, 4)), [LOW], [HIGH]])
    scaled = np.column_stack([np.log10(points[:, 0]), points[:, 1:]])
    mean, std = scaled.mean(0), scaled.std(0)
    kwargs = dict(SIZES, withbn=withbn, **({} if nonlinearity == "SiLU" else {"nonlinearity": nonlinearity}))
    network = random_network(kwargs)
    save_checkpoint(network, folder / f"NNstate_{setup}.sav")
    tree = {
        **import_rvspecfit.CONSTANTS, "mapper_args": (mean, std, [0]), "parnames": NAMES, "lam": np.exp(np.linspace(8.3, 8.31, PIXELS)),
        "log_spec": True, "log_step": True, "device": "cpu", "class_kwargs": kwargs, "outside_kwargs": {"pts": (scaled - mean) / std},
        "nn_file": f"NNstate_{setup}.sav", "revision": "r1", "git_rev": "", "cmdline": "",
    }  # fmt: skip
    save_tree(folder / f"interp_{setup}.h5", {**tree, **(changes or {})})
    return network, mean, std


def read(path):
    """A safetensors file, by its specification."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    description = json.loads(header.pop("__metadata__")["popfit"])
    tensors, end = {}, 0
    for name, entry in header.items():
        begin, stop = entry["data_offsets"]
        assert begin == end, "the tensors follow each other without gaps"
        end = stop
        kind = {"F32": "<f4", "F64": "<f8"}[entry["dtype"]]
        tensors[name] = np.frombuffer(data[begin:stop], kind).reshape(entry["shape"])
    assert end == len(data)
    return tensors, description


def activate(name, x):
    sigmoid = 1 / (1 + np.exp(-x))
    erf = torch.erf(torch.tensor(x / np.sqrt(2))).numpy()
    return {
        "silu": x * sigmoid, "relu": np.maximum(x, 0), "leaky_relu": np.where(x > 0, x, 0.01 * x), "sigmoid": sigmoid,
        "tanh": np.tanh(x), "gelu": x / 2 * (1 + erf),
    }[name]  # fmt: skip


def evaluate(tensors, description, labels):
    """ln flux (n, pixels) at labels (n, 4), in f64."""
    h = np.array(labels, dtype=np.float64)
    for k, label in enumerate(description["labels"]):
        x = np.log10(h[:, k]) if label["transform"] == "log10" else h[:, k]
        h[:, k] = (x - label["mean"]) / label["std"]
    count = sum(name.endswith(".weight") for name in tensors)
    for k in range(count):
        h = h @ tensors[f"layer.{k}.weight"].astype(float).T + tensors[f"layer.{k}.bias"]
        h = activate(description["activation"], h) if k < count - 1 else h
    return np.clip(h, -description["clip"], description["clip"])


def run(*arguments):
    """Exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = import_rvspecfit.main([str(argument) for argument in arguments])
    return code, out.getvalue().strip(), err.getvalue()


class Import(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.out = self.folder / "out.safetensors"

    def test_the_file_gives_what_the_checkpoint_gives(self):
        labels = LOW + (HIGH - LOW) * np.random.default_rng(3).random((20, 4))
        cases = [(name, False) for name in import_rvspecfit.ACTIVATIONS] + [("SiLU", True), ("Tanh", True)]
        for nonlinearity, withbn in cases:
            with self.subTest(nonlinearity, withbn=withbn):
                network, mean, std = make_library(self.folder, "b", nonlinearity, withbn)
                self.assertEqual(run(self.folder, "-o", self.out, "--overwrite"), (0, str(self.out), ""))
                tensors, description = read(self.out)
                z = (np.column_stack([np.log10(labels[:, 0]), labels[:, 1:]]) - mean) / std
                with torch.no_grad():
                    expected = network.double()(torch.tensor(z)).numpy()
                found = evaluate(tensors, description, labels)
                self.assertGreater(expected.std(), 0.1)
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
                # The comparison can fail: one weight off by 1e-4 is seen.
                tensors["layer.3.weight"] = tensors["layer.3.weight"] + 1e-4 * (np.arange(SIZES["width"]) == 0)
                self.assertGreater(np.abs(evaluate(tensors, description, labels) - expected).max(), 1e-6)

    def test_description_and_hulls(self):
        _, mean, std = make_library(self.folder)
        self.assertEqual(run(self.folder, "-o", self.out)[0], 0)
        tensors, description = read(self.out)
        wanted = dict(version=1, activation="silu", output="exp", clip=300.0, medium="vacuum", grid="log", hull=[[0, 1], [2, 3]])
        self.assertEqual(wanted, {key: description[key] for key in wanted})
        for k, label in enumerate(description["labels"]):
            transform, unit = ("log10", "K") if k == 0 else ("identity", "dex")
            self.assertEqual((label["name"], label["unit"], label["transform"]), (NAMES[k], unit, transform))
            self.assertEqual((label["mean"], label["std"], label["min"], label["max"]), (mean[k], std[k], LOW[k], HIGH[k]))
        np.testing.assert_array_equal(tensors["wavelength"], np.exp(np.linspace(8.3, 8.31, PIXELS)))
        with h5py.File(self.folder / "interp_b.h5") as file:
            points = file["outside_kwargs/pts"][:]
        for k, axes in enumerate(description["hull"]):
            facets = tensors[f"hull.{k}"]
            self.assertEqual(facets.dtype, np.float64)
            distance = points[:, axes] @ facets[:, :-1].T + facets[:, -1]
            self.assertLess(distance.max(), 1e-12)
            beyond = points[:, axes].max(0) + 0.1
            self.assertGreater((facets[:, :-1] @ beyond + facets[:, -1]).max(), 0)
            np.testing.assert_allclose(np.linalg.norm(facets[:, :-1], axis=1), 1)

    @unittest.skipIf(spec_inter is None, "rvspecfit is not installed")
    def test_the_file_gives_what_rvspecfit_gives(self):
        make_library(self.folder)
        self.assertEqual(run(self.folder, "-o", self.out)[0], 0)
        tensors, description = read(self.out)
        theirs = spec_inter.getInterpolator("b", {"template_lib": str(self.folder)}, cache={})
        for labels in ([5000.0, 3.0, -1.0, 0.1], [8900.0, 5.0, 0.4, 0.5]):
            ours = np.exp(evaluate(tensors, description, [labels])[0])
            np.testing.assert_allclose(ours, theirs.eval(labels), rtol=3e-6)
        outside = [9500.0, 3.0, -1.0, 0.1]
        z = theirs.mapper.forward(outside)
        facets, axes = tensors["hull.0"], description["hull"][0]
        distance = (z[axes] @ facets[:, :-1].T + facets[:, -1]).max()
        self.assertAlmostEqual(theirs.outsideFlag(outside), distance**2, places=12)

    def test_bare_state_dicts_are_read(self):
        network, *_ = make_library(self.folder)
        torch.save(network.state_dict(), self.folder / "NNstate_b.sav")
        self.assertEqual(run(self.folder, "-o", self.out)[0], 0)

    def test_setups(self):
        code, _, message = run(self.folder)
        self.assertEqual((code, "holds no interp_NAME.h5" in message), (2, True))
        make_library(self.folder, "b")
        make_library(self.folder, "r")
        code, _, message = run(self.folder)
        self.assertEqual((code, "b, r" in message), (2, True))
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        self.assertEqual(run(self.folder, "--setup", "r"), (0, "r.safetensors", ""))
        self.assertTrue((self.folder / "r.safetensors").is_file())

    def test_refusals_name_file_and_field_and_write_nothing(self):
        nan = np.full(PIXELS, np.nan)
        cases = {
            "interpolation_type: `triangulation`": {"interpolation_type": "triangulation"},
            "class_name: `Other`": {"class_name": "Other"},
            "log_spec": {"log_spec": False},
            "log_step": {"log_step": False},
            "nonlinearity: `Softplus`": {"class_kwargs": dict(SIZES, nonlinearity="Softplus")},
            "class_kwargs: unknown: dropout": {"class_kwargs": dict(SIZES, dropout=1)},
            "class_kwargs: indim 5": {"class_kwargs": dict(SIZES, indim=5)},
            "model.lin_0.weight: the shape (8, 4), not (9, 4)": {"class_kwargs": dict(SIZES, width=9)},
            "model.bn_1.weight: missing": {"class_kwargs": dict(SIZES, withbn=True)},
            "lam: expected": {"lam": nan},
            "lam: not positive and increasing": {"lam": np.linspace(5000.0, 4000.0, PIXELS)},
            "mapper_args: a standard deviation": {"mapper_args": (np.zeros(4), np.zeros(4), [0])},
            "mapper_args: log_ids [7]": {"mapper_args": (np.zeros(4), np.ones(4), [7])},
            "mapper_args: 3 means": {"mapper_args": (np.zeros(3), np.ones(4), [0])},
            "outside_kwargs/pts: the shape": {"outside_kwargs": {"pts": np.zeros((9, 3))}},
            "outside_kwargs/pts: no convex hull": {"outside_kwargs": {"pts": np.zeros((9, 4))}},
            "none.sav": {"nn_file": "none.sav"},
        }  # fmt: skip
        for expected, changes in cases.items():
            with self.subTest(expected):
                make_library(self.folder, changes=changes)
                code, out, message = run(self.folder, "-o", self.out)
                self.assertEqual((code, out), (2, ""), message)
                self.assertIn(expected, message)
                self.assertIn(str(self.folder), message)
                self.assertEqual([p.name for p in self.folder.iterdir() if "safetensors" in p.name], [])

    def test_broken_files(self):
        for name, expected in (("NNstate_b.sav", "no torch checkpoint"), ("interp_b.h5", "interp_b.h5")):
            make_library(self.folder)
            whole = (self.folder / name).read_bytes()
            for broken in (b"", b"not one", whole[: len(whole) // 2]):
                (self.folder / name).write_bytes(broken)
                code, _, message = run(self.folder, "-o", self.out)
                self.assertEqual((code, expected in message), (2, True), message)
        make_library(self.folder)
        container = torch.load(self.folder / "NNstate_b.sav", weights_only=True)
        torch.save({**container, "nn_arch_version": 2}, self.folder / "NNstate_b.sav")
        code, _, message = run(self.folder, "-o", self.out)
        self.assertEqual((code, "nn_arch_version: 2" in message), (2, True), message)
        container["state_dict"]["model.gate.weight"] = torch.zeros(3)
        torch.save(container, self.folder / "NNstate_b.sav")
        self.assertIn("NNstate_b.sav: unknown: model.gate.weight", run(self.folder, "-o", self.out)[2])
        with h5py.File(self.folder / "interp_b.h5", "a") as file:
            del file["lam"]
        self.assertIn("interp_b.h5: lam: missing", run(self.folder, "-o", self.out)[2])

    def test_a_file_that_exists_is_replaced_on_request_only(self):
        make_library(self.folder)
        self.out.write_bytes(b"old")
        code, out, message = run(self.folder, "-o", self.out)
        self.assertEqual((code, out, "this file exists already" in message, self.out.read_bytes()), (2, "", True, b"old"), message)
        self.assertEqual(run(self.folder, "-o", self.out, "--overwrite"), (0, str(self.out), ""))
        self.assertNotEqual(self.out.read_bytes(), b"old")

    def test_a_folder_that_is_not_there_is_an_error_of_the_run(self):
        make_library(self.folder)
        code, _, message = run(self.folder, "-o", self.folder / "no" / "out.safetensors")
        self.assertEqual((code, "out.safetensors" in message), (1, True), message)


if __name__ == "__main__":
    unittest.main()
