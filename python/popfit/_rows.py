"""Tables made of rows of several tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from popfit.table import FitTable


def join_rows(tables: Sequence[FitTable], which: npt.NDArray[np.intp], place: npt.NDArray[np.intp]) -> FitTable:
    """Return a table whose row k is row `place[k]` of the table `which[k]`, all of one model and the same settings.

    Columns of numbers that a table lacks, because none of its fits has them, are NaN in its rows.
    """
    first = max(tables, key=lambda table: len(table.columns))
    columns = []
    for name in first.columns:
        values = np.empty(len(which), dtype=first[name].dtype)
        for k, table in enumerate(tables):
            values[which == k] = table[name][place[which == k]] if name in table else np.nan
        if name == "row":
            values = np.arange(len(which), dtype=values.dtype)
        columns.append((name, first.units[name], first.meanings[name], values))
    messages = [tables[k].messages[row] for k, row in zip(which, place, strict=True)]
    joined = FitTable._of(columns, messages, first.metadata)
    if first._model is not None:
        spectra = first._spectra if all(len(table) == len(joined) for table in tables) else None
        flags = list(dict.fromkeys(flag for table in tables for flag in table._flags))
        joined._remember(first._model, spectra, flags, sum(table._seconds or 0.0 for table in tables))
    return joined


def lower_rows(first: FitTable, second: FitTable) -> FitTable:
    """Return of two fits of the same spectra, row by row, the one that converged, or else that of lower objective.

    Where they agree it is the first.
    """
    lower = (first.converged == second.converged) & (second["objective"] < first["objective"])
    better = lower | (second.converged & ~first.converged)
    return join_rows([first, second], better.astype(np.intp), np.arange(len(better)))
