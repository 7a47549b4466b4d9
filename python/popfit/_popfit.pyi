"""popfit's module in Rust. Its interface is not public: `popfit` has that."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

__all__ = [
    "VERSION",
    "Emulator",
    "FileSpectra",
    "Model",
    "after_fork",
    "arrow_stream",
    "check_arrays",
    "close_devices",
    "demo_files",
    "devices",
    "fit",
    "fit_files",
    "read_table",
    "run_command",
    "toml_of_json",
    "write_report",
    "write_table",
]

VERSION: str

#: Name, unit, meaning, and an array or a list of texts.
_Column: TypeAlias = tuple[str, str, str, Any]
_Path: TypeAlias = str | os.PathLike[str]
_Label: TypeAlias = tuple[str, str, tuple[float, float], tuple[float, float], bool]

@final
class Emulator:
    @staticmethod
    def open(path: _Path) -> Emulator: ...
    @staticmethod
    def from_bytes(name: str, bytes: bytes) -> Emulator: ...
    @staticmethod
    def from_layers(
        labels: Sequence[_Label],
        weights: Sequence[npt.NDArray[np.float32]],
        biases: Sequence[npt.NDArray[np.float32]],
        functions: tuple[str, str],
        wavelength: npt.NDArray[np.float64],
        hulls: Sequence[tuple[Sequence[int], Sequence[float]]],
    ) -> Emulator: ...
    def to_bytes(self) -> bytes: ...
    def write(self, path: _Path, overwrite: bool) -> None: ...
    @property
    def labels(self) -> list[tuple[str, str, float, float]]: ...
    @property
    def wavelength(self) -> npt.NDArray[np.float64]: ...
    @property
    def source(self) -> str: ...
    def spectra(self, labels: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]: ...

@final
class Model:
    @staticmethod
    def open(path: _Path) -> Model: ...
    @staticmethod
    def from_text(text: str, folder: _Path, emulators: Mapping[str, Emulator], arms: Sequence[str] | None) -> Model: ...
    @property
    def text(self) -> str: ...
    @property
    def parameters(self) -> list[str]: ...
    @property
    def units(self) -> list[tuple[str, str]]: ...
    @property
    def bounds(self) -> list[tuple[float, float]]: ...
    @property
    def emulators(self) -> dict[str, Emulator]: ...
    @property
    def notes(self) -> tuple[list[str], list[str]]: ...
    def models_at(
        self, source: Any, parameters: npt.NDArray[np.float64], threads: int
    ) -> dict[str, dict[str, npt.NDArray[Any]]]: ...
    def objective(
        self, source: Any, parameters: npt.NDArray[np.float64], derivatives: bool, threads: int
    ) -> dict[str, Any]: ...
    def guess(self, source: Any, seed: int, threads: int) -> list[dict[str, Any]]: ...

@final
class FileSpectra:
    @staticmethod
    def open(path: _Path) -> FileSpectra: ...
    @property
    def notes(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def slice(self, begin: int, end: int) -> FileSpectra: ...
    def ids(self) -> npt.NDArray[np.int64] | list[str]: ...
    def arms(self) -> list[tuple[str, int]]: ...

def fit(
    model: Model,
    source: Any,
    settings: Mapping[str, Any],
    watch: Mapping[str, Any],
) -> dict[str, Any]: ...
def fit_files(
    model: Model,
    files: Sequence[_Path],
    output: tuple[_Path, str, bool, bool, _Path | None],
    settings: Mapping[str, Any],
    watch: Mapping[str, Any],
) -> tuple[dict[str, Any], list[tuple[str, str]], BaseException | None]: ...
def read_table(path: _Path) -> tuple[list[_Column], list[str], dict[str, Any]]: ...
def write_table(columns: Sequence[_Column], metadata: Mapping[str, Any], path: _Path, overwrite: bool) -> None: ...
def write_report(
    columns: Sequence[_Column],
    metadata: Mapping[str, Any],
    path: _Path,
    overwrite: bool,
    model: Model | None,
    sources: Sequence[Any],
    seconds: float | None,
) -> None: ...
def arrow_stream(columns: Sequence[_Column], metadata: Mapping[str, Any]) -> object: ...
def toml_of_json(json: str) -> str: ...
def check_arrays(arrays: Mapping[str, Any]) -> None: ...
def demo_files() -> dict[str, bytes]: ...
def devices() -> tuple[list[dict[str, Any]], str | None, str, list[str]]: ...
def close_devices() -> None: ...
def run_command(arguments: Sequence[str]) -> int: ...
def after_fork() -> None: ...
