"""A network as rvspecfit's "generic" interpolator, in numpy: rvspecfit's own network needs torch."""

from __future__ import annotations

import json
import pathlib
import struct
from typing import Any

import numpy as np


def read_network(path: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the arrays of a network in popfit's format."""
    data = pathlib.Path(path).read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    description = json.loads(header.pop("__metadata__")["popfit"])
    arrays = {}
    for name, entry in header.items():
        first, last = (begin + offset for offset in entry["data_offsets"])
        kind = {"F32": "<f4", "F64": "<f8"}[entry["dtype"]]
        arrays[name] = np.frombuffer(data[first:last], dtype=kind).reshape(entry["shape"])
    return description, arrays


class Mapper:
    """Scales labels, the first of which enters by its logarithm."""

    def __init__(self, mean: Any, deviation: Any, _: Any) -> None:
        self.mean, self.deviation = np.asarray(mean), np.asarray(deviation)

    def forward(self, labels: Any) -> np.ndarray:
        """Return scaled labels."""
        values = np.array(labels, dtype=np.float64)
        values[0] = np.log10(values[0])
        return ((values - self.mean) / self.deviation).astype(np.float32)


class Interpolator:
    """Predicts spectra of scaled labels."""

    def __init__(self, description: dict[str, Any]) -> None:
        _, arrays = read_network(description["file"])
        count = sum(name.endswith(".weight") for name in arrays)
        self.layers = [(arrays[f"layer.{k}.weight"], arrays[f"layer.{k}.bias"]) for k in range(count)]

    def __call__(self, labels: np.ndarray) -> np.ndarray:
        """Return the spectrum."""
        for weight, bias in self.layers[:-1]:
            labels = weight @ labels + bias
            labels = labels / (1.0 + np.exp(-labels))
        weight, bias = self.layers[-1]
        return np.exp(np.clip((weight @ labels + bias).astype(np.float64), -300.0, 300.0))


class Outside:
    """Measures how far labels lie outside of the training set."""

    def __init__(self, description: dict[str, Any]) -> None:
        about, arrays = read_network(description["file"])
        self.hulls = [(axes, arrays[f"hull.{k}"]) for k, axes in enumerate(about["hull"])]

    def __call__(self, labels: np.ndarray) -> float:
        """Return the square of the distance, 0 inside."""
        distances = [(facets[:, :-1] @ labels[axes] + facets[:, -1]).max() for axes, facets in self.hulls]
        return float(max(0.0, *distances) ** 2)


def write_library(folder: pathlib.Path, setup: str, network: pathlib.Path) -> None:
    """Write the file of a setup for rvspecfit."""
    from rvspecfit import serializer

    description, arrays = read_network(str(network))
    labels = description["labels"]
    assert [label["transform"] for label in labels] == ["log10"] + ["identity"] * (len(labels) - 1)
    mean, deviation = (np.array([label[key] for label in labels]) for key in ("mean", "std"))
    content = {
        "interpolation_type": "generic",
        "module": "numpy_network",
        "class_name": "Interpolator",
        "outside_class_name": "Outside",
        "mapper_module": "numpy_network",
        "mapper_class_name": "Mapper",
        "mapper_args": (mean, deviation, None),
        "parnames": tuple(label["name"] for label in labels),
        "lam": arrays["wavelength"],
        "log_spec": True,
        "log_step": True,
        "file": str(network),
        "revision": "",
        "git_rev": "",
    }
    serializer.save_dict_to_hdf5(str(folder / f"interp_{setup}.h5"), content)
