#!/usr/bin/env python3
"""Turns a neural-network template library of rvspecfit into popfit's emulator file.

DIR is what rvspecfit calls template_lib: for each setup (spectrograph arm) NAME it holds interp_NAME.h5, with wavelengths,
mapper, network sizes and training points, and the torch checkpoint that this file names. One setup becomes one safetensors
file, whose path is printed.

Labels, weights and the clipped exponential are taken as rvspecfit uses them; batch norms are folded into the layer that
follows; the two hulls of the training set are computed as rvspecfit does. What the script does not know it refuses.
The templates must be in vacuum: rvspecfit's files do not say whether they are.

Needs torch (1.13 or later), h5py, numpy and scipy; not rvspecfit.
"""

import argparse
import json
import os
import pickle
import re
import struct
import sys
from pathlib import Path

try:
    import h5py
    import numpy as np
    import scipy.spatial
    import torch
except ImportError as error:
    MISSING = error
else:
    MISSING = None

UNITS = {"teff": "K", "logg": "dex", "feh": "dex", "alpha": "dex"}
ACTIVATIONS = {"SiLU": "silu", "ReLU": "relu", "LeakyReLU": "leaky_relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "GELU": "gelu"}
OTHER = "popfit import rvspecfit takes another Python with --python"
CLIP = 300.0  # rvspecfit clips the network's output to ± this before the exponential
BATCH_NORM_EPS = 1e-5  # torch's default, which rvspecfit keeps
CONSTANTS = {
    "interpolation_type": "generic",
    "module": "rvspecfit.nn.RVSInterpolator",
    "class_name": "RVSInterpolator",
    "outside_class_name": "OutsideInterpolator",
    "mapper_module": "rvspecfit.nn.NNInterpolator",
    "mapper_class_name": "Mapper",
}


class Refused(Exception):
    """The library is not what the script can import; the message names file and field."""


def decode(item):
    """A dataset or group as rvspecfit's serializer wrote it: its attribute `type` tells lists, strings and None from arrays."""
    kind = item.attrs.get("type")
    if hasattr(item, "keys"):
        tree = {key: decode(item[key]) for key in item}
        if kind in ("flattened_tuple", "flattened_list"):
            return [tree[f"__item_{k}"] for k in range(len(tree))]
        return tree
    if kind == "None":
        return None
    if kind == "str":
        return item.asstr()[()]
    if kind in ("ndarray", "list", "tuple", "scalar", "empty_array"):
        values = item.asstr()[:] if item.dtype.kind == "O" else item[()]
        return list(values) if kind in ("list", "tuple") else values
    raise Refused(f"{item.file.filename}: {item.name}: unknown type `{kind}`")


class Library:
    """The fields of one interp_NAME.h5."""

    def __init__(self, path):
        self.path = path
        if not path.is_file():
            raise Refused(f"{path}: no such file")
        try:
            with h5py.File(path, "r") as file:
                if file.attrs.get("version") != 1:
                    raise Refused(f"{path}: version {file.attrs.get('version')} of rvspecfit's files; this script reads 1")
                self.tree = decode(file)
        except (OSError, KeyError, RuntimeError, TypeError, UnicodeDecodeError) as error:
            raise Refused(f"{path}: {error}") from None

    def refuse(self, field, message):
        raise Refused(f"{self.path}: {field}: {message}")

    def get(self, field):
        value = self.tree
        for key in field.split("/"):
            if not isinstance(value, dict) or key not in value:
                self.refuse(field, "missing")
            value = value[key]
        return value

    def array(self, field, dimensions):
        """A finite array of f64."""
        return self.checked(field, self.get(field), dimensions)

    def checked(self, field, value, dimensions):
        try:
            value = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            self.refuse(field, "not numbers")
        if value.ndim != dimensions or not np.isfinite(value).all():
            self.refuse(field, f"expected {dimensions} dimension(s) of finite numbers, found the shape {value.shape}")
        return value

    def check_constants(self):
        for field, expected in CONSTANTS.items():
            if str(self.get(field)) != expected:
                self.refuse(field, f"`{self.get(field)}`; only `{expected}` can be imported")
        if self.tree.get("log_spec") is not None and not self.get("log_spec"):  # absent means true there
            self.refuse("log_spec", "false: the network must predict the logarithm of the flux")
        if not self.get("log_step"):
            self.refuse("log_step", "false: popfit needs templates on a grid uniform in ln(wavelength)")

    def labels(self):
        """Mean, standard deviation, and whether log10 comes first, of each label."""
        arguments = self.get("mapper_args")
        if not 2 <= len(arguments) <= 3:
            self.refuse("mapper_args", f"{len(arguments)} values, not M, S and log_ids")
        mean, std = (self.checked(f"mapper_args[{k}]", arguments[k], 1) for k in (0, 1))
        log_ids = [int(k) for k in arguments[2]] if len(arguments) == 3 else [0]
        names = [str(name) for name in self.get("parnames")]
        if not len(names) == len(mean) == len(std):
            self.refuse("mapper_args", f"{len(mean)} means and {len(std)} deviations for {len(names)} labels")
        if not (std > 0).all():
            self.refuse("mapper_args", "a standard deviation that is not positive")
        if any(k not in range(len(names)) for k in log_ids):
            self.refuse("mapper_args", f"log_ids {log_ids} among {len(names)} labels")
        return names, mean, std, [k in log_ids for k in range(len(names))]


def network_shape(library):
    """Layer sizes, whether batch norms follow the inner layers, and the activation."""
    kwargs = dict(library.get("class_kwargs"))
    sizes = [kwargs.pop(key, None) for key in ("indim", "width", "npc", "npix", "nlayers")]
    if any(not isinstance(size, (int, np.integer)) or size < 0 for size in sizes):
        library.refuse("class_kwargs", "indim, width, npc, npix and nlayers must be numbers")
    indim, width, npc, npix, nlayers = map(int, sizes)
    batch_norms = bool(kwargs.pop("withbn", True))
    activation = kwargs.pop("nonlinearity", "SiLU")
    if activation not in ACTIVATIONS:
        library.refuse("class_kwargs/nonlinearity", f"`{activation}` is none of {', '.join(ACTIVATIONS)}")
    if kwargs:
        library.refuse("class_kwargs", f"unknown: {', '.join(kwargs)}")
    return [indim, width, *[width] * nlayers, npc, npix], batch_norms, ACTIVATIONS[activation]


def read_checkpoint(path):
    """Names and arrays of a torch checkpoint: rvspecfit's container, or the bare state_dict of its earlier versions."""
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise Refused(f"{path}: no torch checkpoint: {(str(error) or repr(error)).splitlines()[0]}") from None
    if not isinstance(checkpoint, dict):
        raise Refused(f"{path}: holds a {type(checkpoint).__name__}, not a state_dict")
    if "state_dict" in checkpoint:
        for field, expected in (("checkpoint_magic", "rvspecfit.nn_interpolator"), ("checkpoint_version", 1), ("nn_arch_version", 1)):
            if checkpoint.get(field) != expected:
                raise Refused(f"{path}: {field}: {checkpoint.get(field)!r}; this script reads {expected!r}")
        checkpoint = checkpoint["state_dict"]
    for name, value in checkpoint.items():
        if not torch.is_tensor(value):
            raise Refused(f"{path}: {name}: a {type(value).__name__}, not a tensor")
    return {name: value.double().numpy() for name, value in checkpoint.items()}


def layers(path, sizes, batch_norms):
    """Weight and bias of each linear layer, in f64, with the batch norms folded in."""
    state = read_checkpoint(path)

    def take(name, shape):
        value = state.pop(name, None)
        if value is None:
            raise Refused(f"{path}: {name}: missing")
        if value.shape != shape:
            raise Refused(f"{path}: {name}: the shape {value.shape}, not {shape}")
        if not np.isfinite(value).all():
            raise Refused(f"{path}: {name}: not finite")
        return value

    result = []
    last = len(sizes) - 2
    fold = None
    for k, (inputs, outputs) in enumerate(zip(sizes[:-1], sizes[1:])):
        name = "pc_layer" if k == last else f"model.lin_{k}"
        weight, bias = take(f"{name}.weight", (outputs, inputs)), take(f"{name}.bias", (outputs,))
        if fold:
            scale, offset = fold
            weight, bias = weight * scale, bias + weight @ offset
        result.append((weight, bias))
        fold = None
        if batch_norms and 0 < k < last - 1:
            # After the activation: y = (x - mean) / sqrt(var + eps) * weight + bias, linear, so that the next layer takes it.
            norm = f"model.bn_{k}"
            gain, shift, mean, var = (take(f"{norm}.{part}", (outputs,)) for part in ("weight", "bias", "running_mean", "running_var"))
            state.pop(f"{norm}.num_batches_tracked", None)
            scale = gain / np.sqrt(var + BATCH_NORM_EPS)
            fold = scale, shift - mean * scale
    if state:
        raise Refused(f"{path}: unknown: {', '.join(sorted(state))}")
    return result


def hulls(library, points):
    """Facets (normal, offset) of the convex hulls of the first two and of the other labels, and which labels these are."""
    axes = [[0, 1], list(range(2, points.shape[1]))]
    try:
        return axes, [scipy.spatial.ConvexHull(points[:, which]).equations for which in axes]
    except (ValueError, scipy.spatial.QhullError) as error:
        library.refuse("outside_kwargs/pts", f"no convex hull: {str(error).splitlines()[0]}")


def convert(folder, setup):
    """The tensors and the description of one setup."""
    library = Library(folder / f"interp_{setup}.h5")
    library.check_constants()
    names, mean, std, logarithmic = library.labels()
    sizes, batch_norms, activation = network_shape(library)
    wavelength, points = library.array("lam", 1), library.array("outside_kwargs/pts", 2)
    if not (np.diff(wavelength) > 0).all() or wavelength[0] <= 0:
        library.refuse("lam", "not positive and increasing")
    if (sizes[0], sizes[-1]) != (len(names), len(wavelength)):
        library.refuse("class_kwargs", f"indim {sizes[0]} and npix {sizes[-1]}, for {len(names)} labels and {len(wavelength)} wavelengths")
    if points.shape[1] != len(names) or len(names) < 4:
        library.refuse("outside_kwargs/pts", f"the shape {points.shape} with {len(names)} labels; rvspecfit's hulls take four or more")
    axes, facets = hulls(library, points)
    tensors = {"wavelength": wavelength, **{f"hull.{k}": rows for k, rows in enumerate(facets)}}
    for k, (weight, bias) in enumerate(layers(folder / library.get("nn_file"), sizes, batch_norms)):
        tensors[f"layer.{k}.weight"], tensors[f"layer.{k}.bias"] = weight.astype(np.float32), bias.astype(np.float32)
    labels = []
    for k, name in enumerate(names):
        ends = np.array([points[:, k].min(), points[:, k].max()]) * std[k] + mean[k]
        # rvspecfit scales labels in f32: six digits are what is left of them.
        low, high = (float(f"{x:.6g}") for x in (10**ends if logarithmic[k] else ends))
        transform = "log10" if logarithmic[k] else "identity"
        labels.append(
            {"name": name, "unit": UNITS.get(name, ""), "transform": transform, "mean": mean[k], "std": std[k], "min": low, "max": high}
        )
    description = {
        "version": 1, "activation": activation, "output": "exp", "clip": CLIP, "labels": labels, "medium": "vacuum", "grid": "log",
        "hull": axes, "note": f"imported from rvspecfit: setup {setup}, revision `{library.tree.get('revision') or ''}`",
    }  # fmt: skip
    return tensors, description


def write(path, tensors, description):
    """A safetensors file: length of the header, JSON header, tensors, f64 first for their alignment. It appears when whole."""
    header, data = {"__metadata__": {"popfit": json.dumps(description)}}, b""
    for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].itemsize):
        kind = {4: "F32", 8: "F64"}[tensor.itemsize]
        block = np.ascontiguousarray(tensor, dtype=f"<f{tensor.itemsize}").tobytes()
        header[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": [len(data), len(data) + len(block)]}
        data += block
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(struct.pack("<Q", len(text)) + text + data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def only_setup(folder):
    """The setup of a library that holds one."""
    if not folder.is_dir():
        raise Refused(f"{folder}: no such folder")
    names = sorted(re.fullmatch(r"interp_(.+)\.h5", path.name).group(1) for path in folder.glob("interp_?*.h5"))
    if not names:
        raise Refused(f"{folder}: holds no interp_NAME.h5; is this rvspecfit's template_lib?")
    if len(names) > 1:
        raise Refused(f"{folder}: holds several setups, name one with --setup: {', '.join(names)}")
    return names[0]


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="import_rvspecfit.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="rvspecfit's template_lib")
    parser.add_argument("--setup", metavar="NAME", help="which interp_NAME.h5; may be left out when there is one")
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, help="default: NAME.safetensors")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")
    options = parser.parse_args(arguments)
    if MISSING:
        print(f"import_rvspecfit: {sys.executable}: {MISSING}; torch, h5py, numpy and scipy are needed; {OTHER}", file=sys.stderr)
        return 2
    try:
        setup = options.setup or only_setup(options.folder)
        out = options.output or Path(f"{setup}.safetensors")
        if out.exists() and not options.overwrite:
            raise Refused(f"{out}: this file exists already. Choose another name with -o, or give --overwrite")
        tensors, description = convert(options.folder, setup)
    except Refused as error:
        print(f"import_rvspecfit: {error}", file=sys.stderr)
        return 2
    try:
        write(out, tensors, description)
    except OSError as error:
        print(f"import_rvspecfit: {out}: {error.strerror}", file=sys.stderr)
        return 1
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
