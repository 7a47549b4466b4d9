"""Networks of a template library.

A library is a folder, the configuration's ``template_lib``. For each setup NAME it holds popfit's own file
``NAME.safetensors``, or what ``rvs_train_nn_interpolator`` writes: ``interp_NAME.h5`` and ``NNstate_NAME.sav``. The
latter are imported once for each content, into a cache folder; that needs torch, h5py and scipy.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from popfit._errors import InputError
from popfit.model import Emulator

#: Environment variable that names the folder of imported networks.
CACHE_VARIABLE = "POPFIT_CACHE"

#: How rvspecfit calls interpolators that are no networks.
_GRIDS = {"triangulation": "a triangulation", "regulargrid": "a regular grid"}


class Network(NamedTuple):
    """A network of a library, and what identifies its file."""

    #: Path of the file, time of its last change in ns, and its size.
    key: tuple[str, int, int]
    emulator: Emulator


_opened: dict[tuple[str, int, int], Emulator] = {}


def open_network(setup: str, config: Mapping[str, Any]) -> Network:
    """Open the network of a setup; a file that has not changed is read once.

    Raises
    ------
    FileNotFoundError
        If the library has no such setup.
    InputError
        If its templates are not a network, or cannot be imported.
    """
    path = _network_file(pathlib.Path(config["template_lib"]), setup)
    state = path.stat()
    key = (os.path.abspath(path), state.st_mtime_ns, state.st_size)
    if key not in _opened:
        _opened[key] = Emulator.open(path)
    return Network(key, _opened[key])


def label_names(setup: str, config: Mapping[str, Any]) -> list[str]:
    """Return the names of a setup's labels, in the order of the library."""
    return list(open_network(setup, config).emulator.labels)


def cache_folder() -> pathlib.Path:
    """Return the folder of imported networks: POPFIT_CACHE, or the user's folder for caches."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return pathlib.Path(named)
    base = os.environ.get("LOCALAPPDATA") if os.name == "nt" else os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "popfit"


def _network_file(folder: pathlib.Path, setup: str) -> pathlib.Path:
    """Return popfit's file of a setup, imported if it has to be."""
    own = folder / f"{setup}.safetensors"
    if own.is_file():
        return own
    theirs = folder / f"interp_{setup}.h5"
    if not theirs.is_file():
        raise FileNotFoundError(
            f"{folder}: the library has no setup {setup!r}: neither {own.name} nor {theirs.name} is there; "
            "name the folder as template_lib in the configuration"
        )
    imported = cache_folder() / "rvspecfit" / f"{_content_hash(folder, setup)}-{setup}.safetensors"
    if not imported.is_file():
        _refuse_grids(theirs)
        _import_network(folder, setup, imported)
    return imported


def _content_hash(folder: pathlib.Path, setup: str) -> str:
    """Return the SHA-256 of the files of a setup."""
    digest = hashlib.sha256()
    for name in (f"interp_{setup}.h5", f"NNstate_{setup}.sav"):
        path = folder / name
        if path.is_file():
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _refuse_grids(path: pathlib.Path) -> None:
    """Raise `InputError` if a library's file holds templates to interpolate between instead of a network."""
    try:
        import h5py  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise InputError(
            f"{path}: importing a network of rvspecfit needs torch, h5py and scipy, and h5py cannot be imported: "
            f"{error}. Import it elsewhere with `popfit import rvspecfit`, and put the safetensors file beside it",
            argument="config",
            path=str(path),
        ) from error
    with h5py.File(path, "r") as file:
        if "interpolation_type" in file:
            kind = file["interpolation_type"].asstr()[()]
        else:
            kind = "triangulation" if "triang" in file else "regulargrid" if "regular" in file else ""
    if kind in _GRIDS:
        raise InputError(
            f"{path}: these templates are interpolated by {_GRIDS[kind]}; popfit fits with a network. Train one of the "
            "same library with rvs_train_nn_interpolator in the place of rvs_make_nd",
            argument="config",
            path=str(path),
        )


def _import_network(folder: pathlib.Path, setup: str, output: pathlib.Path) -> None:
    """Write popfit's file of a network of rvspecfit by `popfit import rvspecfit`."""
    output.parent.mkdir(parents=True, exist_ok=True)
    program = "import sys, popfit; sys.exit(popfit.main(sys.argv[1:]))"
    command = [sys.executable, "-P", "-c", program, "import", "rvspecfit", str(folder), "--setup", setup]
    command += ["--output", str(output), "--overwrite", "--python", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip().removeprefix("popfit: ")
        raise InputError(f"{folder}: setup {setup}: {reason}", argument="config", path=str(folder))
