//! Small fits: many curves of a few dozen points and a few parameters, each fitted from start to end in one call.
//! A device may offer them in addition to rounds of a [`Recording`](crate::recording::Recording); they are no stage of
//! a recording.
//! The CPU gives each fit a lane, f32 or f64 (`cpu/small.rs`), a GPU an invocation, f32 (`gpu/small/mod.rs`).
//!
//! Levenberg–Marquardt as in `step`: Marquardt scaling, Nielsen's damping, box bounds by an active set. A fit ends when
//! the predicted reduction of the step after the next is at most `tolerance` × its cost; the last step is taken on
//! trust.

pub(crate) mod packing;
mod point_lanes;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::settings::LevenbergMarquardt;
use super::{Estimator, Tolerances};
use crate::error::Result;
use crate::math::lanes::Lanes;
use crate::recording::{ManyFunction, Member};
pub use crate::values::Numbers;
pub(crate) use point_lanes::{PointLanes, SeatedFits};

/// Maximum number of parameters of a small fit.
pub const MOST_PARAMETERS: usize = 16;
/// Maximum number of points of a small fit.
pub const MOST_POINTS: usize = 512;

/// Grid of the points of a block.
#[derive(Clone, Copy, Debug)]
pub enum LaneGrid<'a, R> {
    /// (predictors, points), the same for all fits.
    Shared(&'a [R]),
    /// (predictors, points), one grid per fit.
    Own(&'a [Lanes<R>]),
}

/// Fits for which a model is evaluated, one per lane.
#[derive(Debug)]
pub struct LaneBlock<'a, R> {
    /// Points to evaluate, in ascending order from call to call.
    pub points: Range<usize>,
    /// Number of all points.
    pub of_points: usize,
    pub grid: LaneGrid<'a, R>,
    /// (P)
    pub parameters: &'a [Lanes<R>],
    /// Values that the model keeps from point to point.
    pub registers: &'a mut Vec<Lanes<R>>,
    /// (all points): data, or empty.
    pub y: &'a [Lanes<R>],
    /// (these points, 1 + P): value, or y − value where there is y, and derivatives, filled by the model.
    pub rows: &'a mut [Lanes<R>],
    /// 1 + P.
    pub stride: usize,
}

/// Function that evaluates a model and its derivatives for one block of lanes.
pub type LaneModel<R> = Arc<dyn Fn(LaneBlock<'_, R>) + Send + Sync>;

/// Fits whose sums are computed at once, without rows, one per lane.
#[derive(Debug)]
pub struct LaneSum<'a, R> {
    /// (P)
    pub parameters: &'a [Lanes<R>],
    /// Memory to work with.
    pub registers: &'a mut Vec<Lanes<R>>,
    /// (points): data.
    pub y: &'a [Lanes<R>],
    /// ((P + 1) (P + 2) / 2): products of the rows residual, J_1 … J_P, packed, filled by the model.
    pub sums: &'a mut [Lanes<R>],
}

/// Function that makes the sums of fits that share a grid, for models that know how: least squares without weights.
pub type AddUp<R> = Arc<dyn Fn(LaneSum<'_, R>) + Send + Sync>;

/// A model and the precision in which it is fitted. GPUs know f32 alone, and no sums.
#[derive(Clone)]
pub enum SmallModel {
    Single(LaneModel<f32>, Option<AddUp<f32>>),
    Double(LaneModel<f64>, Option<AddUp<f64>>),
    /// A user's function, in f64, for many fits in a call. Fits by a function with inaccurate derivatives do not end by
    /// them: a more accurate one, `is_precise`, continues them.
    Function {
        rows: ManyFunction,
        is_precise: bool,
    },
}

/// Bound on the error of a model's values by rounding in f32, from a fit's sums and in units of 2⁻²⁴. The model is
/// u + c, where u = a b e^q, a is the first parameter and c the last. As ‖u‖ = |a| ‖∂u/∂a‖ and
/// ‖q u‖ ≤ Σ_p f_p |p ∂u/∂p|, both norms follow from the diagonal of the normal matrix.
#[derive(Clone, Copy, Debug)]
pub struct SumRounding {
    /// Number of relative roundings of q.
    pub of_exponent: f32,
    /// Number of all other roundings in u.
    pub others: f32,
    /// Indices of the parameters on which q depends, and f_p.
    pub exponents: &'static [(usize, f32)],
}

/// Gaussian prior of one parameter.
#[derive(Clone, Copy, Debug)]
pub struct GaussianPrior {
    pub parameter: usize,
    pub mean: f64,
    /// 1 / standard deviation.
    pub weight: f64,
}

/// Model of small fits, and the settings with which it is fitted.
#[derive(Clone)]
pub struct SmallProblem {
    /// Maximum number of fits at a time, on a device with memory of its own.
    pub capacity: usize,
    pub parameters: usize,
    pub predictors: usize,
    pub points: usize,
    pub model: SmallModel,
    /// True if the model's values at a point do not depend on the points that are evaluated with it.
    pub is_pointwise: bool,
    /// The twin of `model`, as in a [`Custom`](crate::recording::Custom) stage.
    pub wgsl: String,
    /// True if the derivative by the last parameter is 1 everywhere.
    pub ends_in_ones: bool,
    /// Settings of the fits, with the maximum number of rounds in one precision.
    pub settings: LevenbergMarquardt,
    /// Maximum number of rounds in all precisions together.
    pub budget: u32,
    /// Tolerances in f32; in f64 only the error of a cost differs.
    pub tolerances: Tolerances,
    pub estimator: Estimator,
    /// True if variances are those of the sandwich formula: with the scatter of the residuals, and NaN if there are
    /// priors.
    pub is_sandwich: bool,
    pub priors: Vec<GaussianPrior>,
    /// Bound with which a GPU ends fits in f32; `None` where f64 continues all of them.
    pub rounding: Option<SumRounding>,
    /// True if fits also have [`SmallColumns::correlations`].
    pub correlations: bool,
}

/// The data of many fits, row by row. P is the number of parameters.
#[derive(Clone, Copy, Debug)]
pub struct SmallBatch<'a> {
    /// (predictors, points), or (fits, predictors, points) when `own_grid`.
    pub x: &'a [f64],
    pub own_grid: bool,
    /// (fits, points)
    pub y: Numbers<'a>,
    /// (fits, points): standard deviations; `None` if all are 1.
    pub sigma: Option<&'a [f64]>,
    /// (fits, points): points for which it is true do not count.
    pub mask: Option<&'a [bool]>,
    /// (fits, P)
    pub starts: &'a [f64],
    /// (fits, P): units of the parameters, powers of two; `None` for [`unit()`]s of the starts.
    pub units: Option<&'a [f64]>,
    /// Lower and upper bounds, (P) or (fits, P), if there are any. Equal ones hold a parameter.
    pub bounds: Option<(&'a [f64], &'a [f64])>,
    /// Place of the first fit among those of a run.
    pub first: usize,
    /// (fits): numbers of their data in the user's input; `None` for their places in the run.
    pub numbers: Option<&'a [usize]>,
}

/// Optional inputs of the fits of a batch, besides data on a shared grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub own_grid: bool,
    pub is_weighted: bool,
    pub own_units: bool,
    pub is_bounded: bool,
}

/// Starts and results of the fits.
#[derive(Debug)]
pub struct SmallColumns<'a> {
    /// (fits, P): where each fit begins, inside its bounds; then its solution.
    pub parameters: &'a mut [f64],
    /// (fits, P): the diagonal of A⁻¹; 0 for held parameters, NaN for undetermined ones and those at a bound. After
    /// f32, NaN of fits that f64 is to finish.
    pub variances: &'a mut [f64],
    /// (fits, P, P): elements below the diagonal are (A⁻¹)_pq / √((A⁻¹)_pp (A⁻¹)_qq), from the same A as the variances:
    /// 0 beside held parameters, NaN where a variance is. Others are left alone. Only with
    /// [`SmallProblem::correlations`].
    pub correlations: Option<&'a mut [f64]>,
    /// (fits): Σ ((y − model) / sigma)², or the estimator's cost, at the solution, without priors.
    pub chi2: &'a mut [f64],
    /// (fits): reduction that the last step predicted, NaN without a step; on input, that of a fit to be continued.
    pub predicted_reductions: &'a mut [f64],
    /// (fits): [`Status`](super::Status) codes; fits that are not [`WAITING`] are left alone.
    pub status: &'a mut [i8],
    /// (fits): number of linearisations, to which those of this call are added.
    pub rounds: &'a mut [u16],
}

/// Status of a fit that is still to be made.
pub const WAITING: i8 = i8::MIN;

/// Number of fits of a part, except for the last: as many as stay in a core's cache while a thread works on them.
pub const PART: usize = 1024;

/// Fits in parts. A fitter takes every part through [`begin`](Self::begin), [`lend`](Self::lend) and
/// [`finish_part`](Self::finish_part), the parts in any order and on any threads. A part that is not to be made needs
/// no end.
pub trait SmallParts: Sync {
    /// Returns the number of all fits.
    fn fits(&self) -> usize;

    /// Returns the number of parts.
    fn count(&self) -> usize {
        self.fits().div_ceil(PART)
    }

    /// Returns whether the run is to end as soon as it can.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Gathers the data of a part, unless that has been done; returns its shape, or `None` if its fits are not to be
    /// made.
    fn begin(&self, part: usize) -> Option<Shape>;

    /// Calls `work` with the data of a part that has begun, and with the columns of its fits.
    fn lend(&self, part: usize, work: &mut dyn FnMut(&SmallBatch<'_>, &mut SmallColumns<'_>));

    /// Completes a part whose fits have been made.
    ///
    /// # Errors
    /// Returns an error if results are wrong.
    fn finish_part(&self, part: usize) -> Result<()>;
}

/// Fitter of small curves on one device.
pub trait SmallFitter: Send {
    /// Makes all waiting fits of all parts. A fit's bits do not depend on the others.
    fn fit(&mut self, parts: &dyn SmallParts) -> Result<()>;

    /// Sends all fits of all parts to the device, where they stay; `None` if there are none, or if the device has no
    /// memory of its own. The parts have begun then, and none has ended.
    fn upload(self: Box<Self>, _parts: &dyn SmallParts) -> Result<Option<Box<dyn UploadedFits>>> {
        Ok(None)
    }
}

/// Small fits whose data lie in a device's memory. Parts are those of the same curves as at the upload.
pub trait UploadedFits: fmt::Debug + Send {
    /// Begins all parts, and sends the inputs of the fits' parameters again: starts, units and bounds. Returns false if
    /// fits have inputs that none had before: then they must be uploaded again.
    fn restart(&mut self, parts: &dyn SmallParts) -> Result<bool>;

    /// Makes all fits. Their results stay on the device.
    fn fit(&mut self) -> Result<()>;

    /// Begins all parts, copies the results of the last [`fit`](Self::fit) to their columns, and ends them.
    fn read(&mut self, parts: &dyn SmallParts) -> Result<()>;
}

impl SmallBatch<'_> {
    /// Returns whether the points have errors or a mask, so that they do not all count alike.
    pub fn is_weighted(&self) -> bool {
        self.sigma.is_some() || self.mask.is_some()
    }

    /// Returns the index and number of fit `k`, for a user's function.
    pub fn member(&self, k: usize) -> Member {
        let index = self.first + k;
        Member {
            index,
            number: self.numbers.map_or(index, |numbers| numbers[k]),
        }
    }

    /// Returns the unit of parameter number `index`, counted through all fits: as given, or from its start.
    pub fn unit(&self, index: usize) -> f64 {
        self.units
            .map_or_else(|| unit(self.starts[index]), |units| units[index])
    }
}

impl Shape {
    /// Returns the shape of this batch's fits.
    pub fn of(batch: &SmallBatch<'_>) -> Shape {
        Shape {
            own_grid: batch.own_grid,
            is_weighted: batch.is_weighted(),
            own_units: batch.units.is_some(),
            is_bounded: batch.bounds.is_some(),
        }
    }

    /// Returns the shape of fits with the inputs of both shapes.
    pub fn union(self, other: Shape) -> Shape {
        Shape {
            own_grid: self.own_grid || other.own_grid,
            is_weighted: self.is_weighted || other.is_weighted,
            own_units: self.own_units || other.own_units,
            is_bounded: self.is_bounded || other.is_bounded,
        }
    }
}

/// Returns the power of two nearest to |x| in logarithm; 1 for 0. Limited to 2^±60, so that f32's range suffices.
#[inline(always)]
pub fn unit(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i64 - 1023;
    let rounds_up = x.to_bits() & MANTISSA > std::f64::consts::SQRT_2.to_bits() & MANTISSA;
    let exponent = (exponent + i64::from(rounds_up)).clamp(-60, 60);
    let exponent = if x == 0.0 { 0 } else { exponent };
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    #[test]
    fn units_are_the_nearest_powers_of_two() {
        for (x, unit) in [
            (1.0, 1.0),
            (-3.0, 4.0),
            (0.1, 0.125),
            (0.0, 1.0),
            (1e300, 60f64.exp2()),
            (-1.42, 2.0),
        ] {
            assert_eq!(super::unit(x), unit);
        }
    }
}
