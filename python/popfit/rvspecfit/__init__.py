"""Drop-in replacement of rvspecfit: change the import, nothing else.

``from popfit.rvspecfit import fitter_ccf, spec_fit, utils, vel_fit`` in the place of ``from rvspecfit import …`` fits
with popfit. `vel_fit.process_many` fits any number of stars at once. `DIFFERENCES` lists what differs; names that
these modules lack are rvspecfit's own, if it is installed.
"""

from __future__ import annotations

from typing import Any

from popfit._rival import Difference, rival_attribute
from popfit.rvspecfit import fitter_ccf, spec_fit, utils, vel_fit

#: What differs between rvspecfit 0.9.0 and these modules.
DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "template library",
        "triangulations, regular grids and networks",
        "networks: `NAME.safetensors`, or those of `rvs_train_nn_interpolator`, imported once for each content (torch, "
        "h5py and scipy do that)",
    ),
    Difference(
        "`process`: minimum",
        "Nelder–Mead and BFGS from one start",
        "Levenberg–Marquardt from the starts of the first guess, and from `paramDict0` as one more; `second_minimizer` "
        "has no effect",
    ),
    Difference(
        "`process`: labels",
        "beyond the training set with a penalty",
        "likewise, but not beyond the range of a label; a value of `fixParam` out there raises an error",
    ),
    Difference(
        "`param_err`, `param_covar`",
        "finite differences of the network, velocity and vsini held",
        "exact derivatives, with the uncertainty of velocity and vsini; a fixed label has the error 0",
    ),
    Difference("`vel_err`", "a scan at fixed labels", "the same; `vel_err_joint` includes the other parameters"),
    Difference(
        "`vsini`",
        "`min_vsini` is read and not used",
        "the same: vsini is fitted from 0 to `max_vsini`",
    ),
    Difference(
        "`vel_step0`, `min_vel_step`",
        "steps of the scan of `vel_err`, and of the cross-correlation",
        "`vel_step0` is the step of `vel_grid`; the scan chooses its own steps",
    ),
    Difference(
        "`rbf_continuum=False`",
        "has no effect in 0.9.0; polynomials since 0.9.1",
        "Chebyshev polynomials, as its documentation says",
    ),
    Difference("`npoly`", "any number", "up to 32; more goes to rvspecfit"),
    Difference(
        "unknown names in `options`, `fixParam`, `priors`",
        "have no effect",
        "have no effect, and a warning says so",
    ),
    Difference(
        "pixels that the templates do not reach at `min_vel` or `max_vel`",
        "an error",
        "do not count at the velocity of the fit",
    ),
    Difference(
        "errors 10⁷ times those of other pixels",
        "count",
        "mark bad pixels that do not count; `chisq` has their Σ 2 ln e all the same",
    ),
    Difference(
        "two spectra of one setup",
        "exposures that are fitted together",
        "an error here; `popfit.fit` joins them",
    ),
    Difference(
        "`get_chisq`",
        "`fast_interp`, `outside_penalty=False`",
        "these go to rvspecfit; `get_chisq_many` evaluates many points at once",
    ),
    Difference(
        "`fitter_ccf.fit`",
        "templates of `rvs_make_ccf`; `best_model`, `proc_spec`",
        "templates of the network, which rotate unless `max_vsini` is 0; neither of the two",
    ),
    Difference(
        "`firstguess`",
        "velocities on a grid",
        "velocities fitted at each point; points beyond the training range do not compete",
    ),
    Difference(
        "`proc_desi`, `proc_many`: tables",
        "RVTAB, FIBERMAP, SCORES, EXP_FIBERMAP",
        "RVTAB, FIBERMAP, SCORES, METADATA; what popfit does not compute is NaN, VRAD_CCF for example",
    ),
    Difference(
        "RVS_WARN",
        "bit 8 within a margin of fixed edges of teff, logg and [Fe/H]",
        "bit 8 at a bound of any label, or outside of the training set",
    ),
    Difference(
        "`proc_many(subdirs=True)`",
        "refuses paths of more than two parts in 0.9.0, of less than two since 0.9.2",
        "makes the last two folders of each path, as its documentation says",
    ),
    Difference(
        "`proc_desi`, `proc_many`: selection",
        "`objtypes` (with desitarget), `expid_range`, `zbest_select`, `zbest_include`",
        "go to rvspecfit, as does `use_resolution_matrix`",
    ),
    Difference(
        "`proc_desi`, `proc_many`: FIBERSTATUS",
        "0 and 8 in 0.9.0; later than 0.9.3 any that has no bit but 3 and 20",
        "any that has no bit but 3 and 20, as for `popfit fit`",
    ),
    Difference(
        "`nthreads`, `poolex`",
        "processes, a fibre each",
        "threads of one run; no executor is used",
    ),
)


def __getattr__(name: str) -> Any:
    return rival_attribute(__name__, "rvspecfit", name)


__all__ = ["DIFFERENCES", "fitter_ccf", "spec_fit", "utils", "vel_fit"]
