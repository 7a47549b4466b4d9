"""`popfit.xarray` beside xarray's own ``curvefit``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import required

import popfit

xr = required("xarray")
required("popfit.xarray")


def decay(t: Any, n0: Any, tau: Any = 1.0) -> Any:
    return n0 * np.exp(-t / tau)


def cube(noise: float = 0.02) -> Any:
    """Return noisy decays on a grid of 4 × 5, of which some values are missing, and one decay as a whole."""
    rng = np.random.default_rng(2)
    t = np.arange(0.0, 5.0, 0.25)
    n0, tau = rng.uniform(2.0, 4.0, (2, 4, 5, 1))
    values = decay(t, n0, tau) + noise * rng.normal(size=(4, 5, t.size))
    values[1, 2, 3] = values[3, 0, 7:11] = np.nan
    values[2, 2] = np.nan
    return xr.DataArray(values, dims=("y", "x", "t"), coords={"y": range(4), "x": range(5), "t": t}, attrs={"k": "v"})


def assert_alike(found: Any, wanted: Any) -> None:
    """Assert that two results have the same coordinates, and the same numbers to 0.001 errors."""
    assert list(found.data_vars) == list(wanted.data_vars) and found.attrs == wanted.attrs
    for name in wanted.coords:
        np.testing.assert_array_equal(found.coords[name].values, wanted.coords[name].values)
    for name in wanted.data_vars:
        one, other = found[name].transpose(*wanted[name].dims).values, wanted[name].values
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


def test_a_cube() -> None:
    data = cube()
    wanted = data.curvefit("t", decay, p0={"n0": 4.0}, bounds={"tau": (0.5, 9.0)})
    assert_alike(data.popfit.curvefit("t", decay, p0={"n0": 4.0}, bounds={"tau": (0.5, 9.0)}), wanted)
    guess = xr.DataArray(np.linspace(2.0, 4.0, 5), coords={"x": range(5)})
    wanted = data.curvefit(data.t, decay, p0={"tau": guess})
    assert_alike(data.popfit.curvefit(data.t, decay, p0={"tau": guess}), wanted)


def test_a_dataset_and_further_dimensions() -> None:
    both = xr.Dataset({"a": cube(), "b": 2.0 * cube()}).assign_attrs(source="test")
    assert_alike(both.popfit.curvefit("t", decay), both.curvefit("t", decay))
    data = cube().isel(x=[0])
    assert_alike(data.popfit.curvefit("t", decay, reduce_dims="y"), data.curvefit("t", decay, reduce_dims="y"))


def test_points_that_differ_from_curve_to_curve() -> None:
    data = cube()
    shift = xr.DataArray(np.linspace(0.0, 0.5, 4), coords={"y": range(4)})
    time = data.t + shift
    moved = decay(time, 3.0, 2.0) + 0.0 * data.x
    fit = moved.popfit.curvefit(time, decay, reduce_dims="t")
    np.testing.assert_allclose(fit.curvefit_coefficients.sel(param="tau").values, 2.0, rtol=1e-6)


def test_two_coordinates() -> None:
    def plane(xy: Any, a: Any, b: Any, c: Any) -> Any:
        x, y = xy
        return a * x + b * y + c

    x, y = xr.DataArray(np.arange(6.0), dims="x"), xr.DataArray(np.arange(5.0), dims="y")
    data = (2.0 * x - 3.0 * y + xr.DataArray([1.0, 2.0], dims="k")).assign_coords(x=x, y=y)
    fit = data.popfit.curvefit(["x", "y"], plane)
    np.testing.assert_allclose(fit.curvefit_coefficients.values, [[2.0, -3.0, 1.0], [2.0, -3.0, 2.0]], atol=1e-9)


def test_blocks_of_dask() -> None:
    required("dask")
    data = cube()
    lazy = data.chunk({"y": 2}).popfit.curvefit("t", decay)
    assert hasattr(lazy.curvefit_coefficients.data, "dask")
    assert_alike(lazy.compute(), data.popfit.curvefit("t", decay))


def test_errors() -> None:
    data = cube()
    with pytest.raises(ValueError, match="No arguments to `coords`"):
        data.isel(t=0).popfit.curvefit("t", decay)
    with pytest.raises(ValueError, match='errors must be either "raise" or "ignore"'):
        data.popfit.curvefit("t", decay, errors="warn")
    with pytest.raises(ValueError, match="variable length"):
        data.popfit.curvefit("t", lambda t, *p: p[0] * t)
    with pytest.raises(ValueError, match="Lower bound for 'tau' has unexpected dimensions"):
        data.popfit.curvefit("t", decay, bounds={"tau": (xr.DataArray([1.0], dims="q"), 2.0)})
    data[0, 0, 0] = np.inf
    with pytest.raises(RuntimeError, match="curve 0"):
        data.popfit.curvefit("t", decay)
    fit = data.popfit.curvefit("t", decay, errors="ignore")
    assert np.isnan(fit.curvefit_coefficients[0, 0]).all() and np.isfinite(fit.curvefit_coefficients[0, 1]).all()
    assert popfit.xarray.DIFFERENCES
