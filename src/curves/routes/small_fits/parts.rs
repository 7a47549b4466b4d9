//! The parts in which curves are gathered, fitted and judged. From its data to its results a part stays in the cache of
//! one core.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bounds::collect_bounds;
use super::covariances::scale_correlations;
use super::ends::{prepare_second_fits, write_ends};
use super::{Ending, SmallFitRun};
use crate::cpu::small::CpuSmallFitter;
use crate::curves::CurveColumns;
use crate::curves::input::data::{Curves, GridKind};
use crate::curves::input::rows::{borrow_stored_rows, rows_in_f64};
use crate::curves::input::sizes::set_sizes;
use crate::curves::watch::Watch;
use crate::device::verify::{MAX_CHECKED_FITS, sample_successes};
use crate::error::Result;
use crate::flag::Flags;
use crate::solver::Status;
use crate::solver::small::{PART, Shape, SmallBatch, SmallColumns, SmallParts};
use crate::values::Values;

/// All parts of a run of small fits.
pub(super) struct Parts<'p, 'a> {
    small_run: &'p SmallFitRun<'a>,
    /// Fitter that continues after f32, or after one-sided differences; `None` if one fitter is enough.
    second: Option<CpuSmallFitter>,
    /// Number of fits of each part whose costs the host computes again.
    checks_per_part: usize,
    watch: &'p Watch<'p>,
    fits: usize,
    parts: Vec<Mutex<CurvePart<'p, 'a>>>,
    /// Memory of parts that have ended, for the next ones: to allocate it would take as long as a round.
    spare: Mutex<Vec<Gathered<'a>>>,
}

/// Some curves and their results.
struct CurvePart<'p, 'a> {
    curves: Range<usize>,
    rows: ResultRows<'p>,
    gathered: Option<Gathered<'a>>,
}

/// Some rows of the results.
pub(super) struct ResultRows<'p> {
    /// (rows, P)
    pub parameters: &'p mut [f64],
    /// (rows, P): variances until the end.
    pub errors: &'p mut [f64],
    /// (rows, P, P), if they are asked for: correlations until the end.
    pub covariance: Option<&'p mut [f64]>,
    pub chi2: &'p mut [f64],
    pub status: &'p mut [Status],
    pub rounds: &'p mut [u32],
    pub evaluations: &'p mut [u32],
    pub flags: &'p mut [Flags],
}

/// Data of a part's fits that are not borrowed from their curves, and memory for their ends.
#[derive(Default)]
struct Gathered<'a> {
    /// (fits): the largest |y|, NaN where one is not finite.
    sizes: Vec<f64>,
    masked: Option<Cow<'a, [bool]>>,
    /// Rows of the curves, where they are not stored so: f32 widened to f64, and rows that hold for all.
    x: Vec<f64>,
    sigma: Vec<f64>,
    starts: Vec<f64>,
    /// Starts and units of the fits, where some differ from those of the curves.
    prepared: Option<(Vec<f64>, Vec<f64>)>,
    bounds: Option<(Vec<f64>, Vec<f64>)>,
    /// (fits), as in [`SmallColumns`].
    predicted_reductions: Vec<f64>,
    status: Vec<i8>,
    rounds: Vec<u16>,
}

impl<'p, 'a> Parts<'p, 'a> {
    /// Divides curves and the columns of their results into parts. `second` continues what another fitter has begun.
    /// `is_checked`: the host computes some costs again.
    pub fn new(
        small_run: &'p SmallFitRun<'a>,
        columns: &'p mut CurveColumns,
        second: Option<CpuSmallFitter>,
        is_checked: bool,
        watch: &'p Watch<'p>,
    ) -> Parts<'p, 'a> {
        let count = small_run.parameters;
        let fits = columns.chi2.len();
        // 1. Split every column into the rows of the parts.
        let mut parameters = columns.parameters.chunks_mut(PART * count);
        let mut errors = columns.errors.chunks_mut(PART * count);
        let mut status = columns.status.chunks_mut(PART);
        let mut rounds = columns.rounds.chunks_mut(PART);
        let mut evaluations = columns.evaluations.chunks_mut(PART);
        let mut flags = columns.flags.chunks_mut(PART);
        let mut covariances = columns
            .covariance
            .iter_mut()
            .flat_map(|all| all.chunks_mut(PART * count * count));
        // 2. Collect the rows of each part.
        let mut parts = Vec::new();
        for (k, chi2) in columns.chi2.chunks_mut(PART).enumerate() {
            let curves = k * PART..k * PART + chi2.len();
            let rows = ResultRows {
                parameters: parameters.next().unwrap_or_default(),
                errors: errors.next().unwrap_or_default(),
                covariance: covariances.next(),
                chi2,
                status: status.next().unwrap_or_default(),
                rounds: rounds.next().unwrap_or_default(),
                evaluations: evaluations.next().unwrap_or_default(),
                flags: flags.next().unwrap_or_default(),
            };
            parts.push(Mutex::new(CurvePart {
                curves,
                rows,
                gathered: None,
            }));
        }
        // 3. Share the checks among them.
        let checks_per_part = if is_checked {
            MAX_CHECKED_FITS.div_ceil(parts.len().max(1))
        } else {
            0
        };
        Parts {
            small_run,
            second,
            checks_per_part,
            watch,
            fits,
            parts,
            spare: Mutex::default(),
        }
    }

    /// Locks a part.
    fn lock_part(&self, part: usize) -> MutexGuard<'_, CurvePart<'p, 'a>> {
        self.parts[part]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the memory of a part that has ended, if there is any.
    fn take_spare(&self) -> Option<Gathered<'a>> {
        self.spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }
}

impl SmallParts for Parts<'_, '_> {
    fn fits(&self) -> usize {
        self.fits
    }

    fn is_stopped(&self) -> bool {
        self.watch.is_stopped()
    }

    fn begin(&self, part: usize) -> Option<Shape> {
        let mut part = self.lock_part(part);
        let CurvePart {
            curves,
            rows,
            gathered,
        } = &mut *part;
        if gathered.is_none() && self.watch.is_stopped() {
            rows.leave_at_starts(self.small_run.curves, curves.clone());
            return None;
        }
        let is_new = gathered.is_none();
        let data = gathered.get_or_insert_with(|| self.take_spare().unwrap_or_default());
        if is_new {
            data.gather(self.small_run, curves.clone());
        }
        let (batch, sizes, mut columns) = data.borrow_batch(self.small_run, curves.clone(), rows);
        if is_new {
            self.small_run.begin_fits(&batch, sizes, &mut columns);
        }
        Some(Shape::of(&batch))
    }

    fn lend(&self, part: usize, work: &mut dyn FnMut(&SmallBatch<'_>, &mut SmallColumns<'_>)) {
        let mut part = self.lock_part(part);
        let CurvePart {
            curves,
            rows,
            gathered,
        } = &mut *part;
        if let Some(gathered) = gathered {
            let (batch, _, mut columns) =
                gathered.borrow_batch(self.small_run, curves.clone(), rows);
            work(&batch, &mut columns);
        }
    }

    fn finish_part(&self, part: usize) -> Result<()> {
        let mut part = self.lock_part(part);
        let CurvePart {
            curves,
            rows,
            gathered,
        } = &mut *part;
        let small_run = self.small_run;
        let first = curves.start;
        let Some(mut data) = gathered.take() else {
            return Ok(());
        };
        // 1. Continue the fits that the first fitter has not brought to an end.
        let (batch, sizes, mut columns) = data.borrow_batch(small_run, curves.clone(), rows);
        if let Some(second) = &self.second {
            if self.checks_per_part > 0 {
                self.spot_check(first, &columns)?;
            }
            prepare_second_fits(
                &batch,
                small_run.parameters,
                small_run.fitter.budget(),
                &mut columns,
            );
            second.fit_part(&batch, &mut columns, &|| self.watch.is_stopped());
        }
        // 2. Compute errors, statuses, covariances and flags.
        small_run.finish_fits(&batch, sizes, &mut columns);
        write_ends(rows, &data.status, &data.rounds);
        scale_correlations(rows);
        small_run.set_flags(as_slices(&data.bounds), rows);
        // 3. Count the fits that are not repeated one by one.
        if small_run.ending == Ending::AtShareOfErrors {
            let final_fits = rows
                .status
                .iter()
                .zip(&*rows.flags)
                .filter(|(status, flags)| {
                    **status == Status::BadInput || status.is_success() && flags.is_empty()
                })
                .count();
            self.watch.add_ended(final_fits);
        }
        // 4. Leave the memory to the next part.
        self.spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(data);
        Ok(())
    }
}

impl Parts<'_, '_> {
    /// Compares χ² of a few successes with the host's; returns an error if one differs. `first` is the index of the
    /// part's first curve.
    fn spot_check(&self, first: usize, columns: &SmallColumns<'_>) -> Result<()> {
        let small_run = self.small_run;
        let count = small_run.parameters;
        let status = |k: usize| Status::from_code(columns.status[k].into());
        for k in sample_successes(0..columns.status.len(), status, self.checks_per_part) {
            if let Some(curve) = small_run.curve(first + k) {
                let parameters = &columns.parameters[k * count..(k + 1) * count];
                small_run
                    .fitter
                    .check_cost(&curve, parameters, columns.chi2[k])?;
            }
        }
        Ok(())
    }
}

impl ResultRows<'_> {
    /// Writes the rows of curves that stay at their starts because the run has been stopped.
    fn leave_at_starts(&mut self, all_curves: &Curves<'_>, range: Range<usize>) {
        let count = self.parameters.len() / range.len();
        self.parameters
            .copy_from_slice(all_curves.starts_of(range, count, &mut Vec::new()));
        self.errors.fill(f64::NAN);
        if let Some(covariance) = &mut self.covariance {
            covariance.fill(f64::NAN);
        }
        self.chi2.fill(f64::NAN);
        self.status.fill(Status::Interrupted);
        self.rounds.fill(0);
        self.evaluations.fill(0);
        self.flags.fill(Flags::empty());
    }
}

impl<'a> Gathered<'a> {
    /// Gathers the inputs of the fits of a range of curves.
    fn gather(&mut self, small_run: &SmallFitRun<'a>, range: Range<usize>) {
        let SmallFitRun {
            curves,
            points,
            parameters,
            predictors,
            ..
        } = *small_run;
        let data = curves.y.slice(range.start * points..range.end * points);
        set_sizes(data, points, &mut self.sizes);
        self.masked = curves.masked(range.clone(), points);
        self.predicted_reductions.resize(range.len(), f64::NAN);
        self.status.resize(range.len(), 0);
        self.rounds.resize(range.len(), 0);
        let starts = curves.starts_of(range.clone(), parameters, &mut self.starts);
        self.prepared = small_run.prepare_starts(range.clone(), &self.sizes, starts);
        self.bounds = collect_bounds(small_run.fitter, curves, range.clone(), starts);
        curves.sigmas_of(range.clone(), points, &mut self.sigma);
        if curves.grid == GridKind::Own {
            rows_in_f64(&curves.x, range, predictors * points, &mut self.x);
        }
    }

    /// Returns the inputs of the fits of a range of curves, which have been gathered, their sizes, and their columns,
    /// which lie in `rows` and here.
    fn borrow_batch<'s>(
        &'s mut self,
        small_run: &'s SmallFitRun<'a>,
        range: Range<usize>,
        rows: &'s mut ResultRows<'_>,
    ) -> (SmallBatch<'s>, &'s [f64], SmallColumns<'s>) {
        let SmallFitRun {
            curves,
            points,
            parameters,
            predictors,
            ..
        } = *small_run;
        let stored_or = |values: &'s Values<'a>, length, gathered: &'s Vec<f64>| {
            borrow_stored_rows(values, range.clone(), length).unwrap_or(gathered)
        };
        let own_grid = curves.grid == GridKind::Own;
        let (starts, units) = match &self.prepared {
            Some((starts, units)) => (&starts[..], Some(&units[..])),
            None => (
                stored_or(&curves.starts.values, parameters, &self.starts),
                None,
            ),
        };
        let batch = SmallBatch {
            x: if own_grid {
                stored_or(&curves.x, predictors * points, &self.x)
            } else {
                &small_run.x
            },
            own_grid,
            y: curves.y.slice(range.start * points..range.end * points),
            sigma: curves
                .sigma
                .as_ref()
                .map(|sigma| stored_or(sigma, points, &self.sigma)),
            mask: self.masked.as_deref(),
            starts,
            units,
            bounds: as_slices(&self.bounds),
            first: range.start,
            numbers: curves
                .numbers
                .as_ref()
                .map(|numbers| &numbers[range.clone()]),
        };
        let columns = SmallColumns {
            parameters: rows.parameters,
            variances: rows.errors,
            correlations: rows.covariance.as_deref_mut(),
            chi2: rows.chi2,
            predicted_reductions: &mut self.predicted_reductions,
            status: &mut self.status,
            rounds: &mut self.rounds,
        };
        (batch, &self.sizes, columns)
    }
}

/// Borrows lower and upper bounds.
fn as_slices(bounds: &Option<(Vec<f64>, Vec<f64>)>) -> Option<(&[f64], &[f64])> {
    bounds
        .as_ref()
        .map(|(lower, upper)| (&lower[..], &upper[..]))
}
