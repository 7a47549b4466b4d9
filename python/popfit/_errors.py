"""Exceptions and warnings."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from popfit.curves import CurveFits
    from popfit.table import FitTable


class Error(Exception):
    """Base of popfit's exceptions: a run that failed. A *fit* that failed is a row with a status.

    Attributes
    ----------
    path : str or None
        File that the error is about.
    """

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class InputError(Error, ValueError):
    """Input that cannot be fitted: arrays, files, models or settings.

    Attributes
    ----------
    argument : str or None
        Name of the array, setting or other argument that is wrong.
    path : str or None
        File that is wrong.
    row : int or None
        Row of the spectrum that is wrong, from 0.
    column : int or None
        Column of a text that is wrong, from 1.
    faults : list of str
        All faults, if several settings are wrong.
    """

    def __init__(
        self,
        message: str,
        *,
        argument: str | None = None,
        path: str | None = None,
        row: int | None = None,
        column: int | None = None,
        faults: list[str] | None = None,
    ) -> None:
        super().__init__(message, path=path)
        self.argument = argument
        self.row = row
        self.column = column
        self.faults = [message] if faults is None else faults


class ColumnError(InputError, KeyError):
    """A column that a table does not have."""

    def __str__(self) -> str:
        """Return the message as it is; a KeyError would put it in quotes."""
        return str(self.args[0])


class FileError(Error, OSError):
    """A file that the operating system refuses.

    Attributes
    ----------
    path, filename : str or None
        The file.
    """

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message, path=path)
        self.filename = path
        self.errno = self._number

    _number: int | None = None

    def __str__(self) -> str:
        """Return the message, which names the file."""
        return str(self.args[0])


class MissingFileError(FileError, FileNotFoundError):
    """A file that does not exist."""

    _number = errno.ENOENT


class ForbiddenFileError(FileError, PermissionError):
    """A file that this user may not open."""

    _number = errno.EACCES


class FolderError(FileError, IsADirectoryError):
    """A folder in the place of a file."""

    _number = errno.EISDIR


class ExistingFileError(FileError, FileExistsError):
    """An output that exists and is not to be replaced."""

    _number = errno.EEXIST


class DeviceError(Error, RuntimeError):
    """A device that is missing, or that failed.

    Attributes
    ----------
    device : str or None
        Name of the device that failed.
    """

    def __init__(self, message: str, *, device: str | None = None) -> None:
        super().__init__(message)
        self.device = device


class ForkError(Error, RuntimeError):
    """Work in a forked child of a process that has used popfit."""


class InternalError(Error, RuntimeError):
    """A fault of popfit itself."""


class Interrupted(KeyboardInterrupt):
    """A run that Ctrl-C has ended.

    Attributes
    ----------
    table : FitTable or None
        What was fitted of spectra: fits that did not end have the status ``interrupted``.
    fits : CurveFits or None
        What was fitted of curves.
    """

    def __init__(self, message: str, *, table: FitTable | None = None, fits: CurveFits | None = None) -> None:
        super().__init__(message)
        self.table = table
        self.fits = fits


class PopfitWarning(UserWarning):
    """A warning on input or settings that the user should act on."""
