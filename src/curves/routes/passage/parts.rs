//! The parts in which curves are gathered, fitted and judged. A part stays in a core's cache from its data to its
//! results.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Passage;
use super::bounds::bounds;
use super::covariances::scale_correlations;
use super::ends::{put_ends, resume};
use crate::cpu::small::CpuSmallFitter;
use crate::curves::CurveColumns;
use crate::curves::input::data::{Curves, Grid};
use crate::curves::input::rows::{rows_of, stored_rows};
use crate::curves::input::sizes::set_sizes;
use crate::curves::watch::Watch;
use crate::device::verify::{MAX_CHECKED_FITS, sample_successes};
use crate::error::Result;
use crate::flag::Flags;
use crate::solver::Status;
use crate::solver::small::{PART, Shape, SmallBatch, SmallColumns, SmallParts};
use crate::values::Values;

/// All parts of a passage.
pub(super) struct Parts<'p, 'a> {
    passage: &'p Passage<'a>,
    /// Brings fits to their ends after f32, or after differences on one side; `None` where they need no other end.
    second: Option<CpuSmallFitter>,
    /// Number of fits of each part that the host computes again.
    checks_per_part: usize,
    watch: &'p Watch<'p>,
    fits: usize,
    parts: Vec<Mutex<Part<'p, 'a>>>,
    /// Memory of parts that have ended, for the next: to allocate it would take as long as a round.
    spare: Mutex<Vec<Gathered<'a>>>,
}

/// Some curves and their results.
struct Part<'p, 'a> {
    curves: Range<usize>,
    rows: Rows<'p>,
    gathered: Option<Gathered<'a>>,
}

/// Some rows of the results.
pub(super) struct Rows<'p> {
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

/// Data of a part's fits beside those that their curves lend, and memory for their ends.
#[derive(Default)]
struct Gathered<'a> {
    /// (fits): the largest |y|, NaN where one is not finite.
    sizes: Vec<f64>,
    masked: Option<Cow<'a, [bool]>>,
    /// Rows of the curves, where they are not stored so: f32 widened to f64, and rows that hold for all.
    x: Vec<f64>,
    sigma: Vec<f64>,
    starts: Vec<f64>,
    /// Starts and units of the fits, where some are not those of the curves.
    prepared: Option<(Vec<f64>, Vec<f64>)>,
    bounds: Option<(Vec<f64>, Vec<f64>)>,
    /// (fits), as in [`SmallColumns`].
    promises: Vec<f64>,
    status: Vec<i8>,
    rounds: Vec<u16>,
}

impl<'p, 'a> Parts<'p, 'a> {
    /// Divides curves and the columns of their results into parts. `second` ends what another fitter has begun.
    /// `is_checked`: the host computes some results again.
    pub fn new(
        passage: &'p Passage<'a>,
        columns: &'p mut CurveColumns,
        second: Option<CpuSmallFitter>,
        is_checked: bool,
        watch: &'p Watch<'p>,
    ) -> Parts<'p, 'a> {
        let (p, fits) = (passage.parameters, columns.chi2.len());
        let wide = columns
            .parameters
            .chunks_mut(PART * p)
            .zip(columns.errors.chunks_mut(PART * p));
        let narrow = columns
            .chi2
            .chunks_mut(PART)
            .zip(columns.status.chunks_mut(PART));
        let ends = columns
            .rounds
            .chunks_mut(PART)
            .zip(columns.evaluations.chunks_mut(PART));
        let ends = ends.zip(columns.flags.chunks_mut(PART));
        let mut covariances = columns
            .covariance
            .iter_mut()
            .flat_map(|all| all.chunks_mut(PART * p * p));
        let parts = wide.zip(narrow).zip(ends).enumerate();
        let parts = parts.map(
            |(k, (((parameters, errors), (chi2, status)), ((rounds, evaluations), flags)))| {
                let curves = k * PART..k * PART + chi2.len();
                let covariance = covariances.next();
                let rows = Rows {
                    parameters,
                    errors,
                    covariance,
                    chi2,
                    status,
                    rounds,
                    evaluations,
                    flags,
                };
                Mutex::new(Part {
                    curves,
                    rows,
                    gathered: None,
                })
            },
        );
        let parts: Vec<_> = parts.collect();
        let checks_per_part = if is_checked {
            MAX_CHECKED_FITS.div_ceil(parts.len().max(1))
        } else {
            0
        };
        Parts {
            passage,
            second,
            checks_per_part,
            watch,
            fits,
            parts,
            spare: Mutex::default(),
        }
    }

    /// Locks a part.
    fn part(&self, part: usize) -> MutexGuard<'_, Part<'p, 'a>> {
        self.parts[part]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the memory of a part that has ended.
    fn spare(&self) -> Option<Gathered<'a>> {
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
        let mut part = self.part(part);
        let Part {
            curves,
            rows,
            gathered,
        } = &mut *part;
        if gathered.is_none() && self.watch.is_stopped() {
            rows.leave_at_starts(self.passage.curves, curves.clone());
            return None;
        }
        let is_new = gathered.is_none();
        let data = gathered.get_or_insert_with(|| self.spare().unwrap_or_default());
        if is_new {
            data.gather(self.passage, curves.clone());
        }
        let (batch, sizes, mut columns) = data.split(self.passage, curves.clone(), rows);
        if is_new {
            self.passage.begin(&batch, sizes, &mut columns);
        }
        Some(Shape::of(&batch))
    }

    fn lend(&self, part: usize, work: &mut dyn FnMut(&SmallBatch<'_>, &mut SmallColumns<'_>)) {
        let mut part = self.part(part);
        let Part {
            curves,
            rows,
            gathered,
        } = &mut *part;
        if let Some(gathered) = gathered {
            let (batch, _, mut columns) = gathered.split(self.passage, curves.clone(), rows);
            work(&batch, &mut columns);
        }
    }

    fn end(&self, part: usize) -> Result<()> {
        let mut part = self.part(part);
        let Part {
            curves,
            rows,
            gathered,
        } = &mut *part;
        let (passage, first) = (self.passage, curves.start);
        let Some(mut data) = gathered.take() else {
            return Ok(());
        };
        // 1. Go on where the first fitter has not come to an end.
        let (batch, sizes, mut columns) = data.split(passage, curves.clone(), rows);
        if let Some(second) = &self.second {
            self.check(first, &columns)?;
            resume(
                &batch,
                passage.parameters,
                passage.fitter.budget(),
                &mut columns,
            );
            second.fit_part(&batch, &mut columns, &|| self.watch.is_stopped());
        }
        // 2. Compute errors, statuses, covariances and flags.
        passage.finish(&batch, sizes, &mut columns);
        put_ends(rows, &data.status, &data.rounds);
        scale_correlations(rows);
        passage.set_flags(slices(&data.bounds), rows);
        // the others may be fitted again, one by one
        if !passage.exact {
            let is_plain = |(status, flags): &(&Status, &Flags)| {
                **status == Status::BadInput || status.is_success() && flags.is_empty()
            };
            self.watch.add(
                rows.status
                    .iter()
                    .zip(&*rows.flags)
                    .filter(is_plain)
                    .count(),
            );
        }
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
    fn check(&self, first: usize, columns: &SmallColumns<'_>) -> Result<()> {
        let (passage, p) = (self.passage, self.passage.parameters);
        let status = |k: usize| Status::from_code(columns.status[k].into());
        for k in sample_successes(0..columns.status.len(), status, self.checks_per_part) {
            if let Some(curve) = passage.curve(first + k) {
                passage.fitter.check_cost(
                    &curve,
                    &columns.parameters[k * p..(k + 1) * p],
                    columns.chi2[k],
                )?;
            }
        }
        Ok(())
    }
}

impl Rows<'_> {
    /// Writes the rows of curves that stay at their starts because the run has been stopped.
    fn leave_at_starts(&mut self, of: &Curves<'_>, curves: Range<usize>) {
        let p = self.parameters.len() / curves.len();
        self.parameters
            .copy_from_slice(of.starts_of(curves, p, &mut Vec::new()));
        self.errors.fill(f64::NAN);
        self.covariance
            .iter_mut()
            .for_each(|all| all.fill(f64::NAN));
        self.chi2.fill(f64::NAN);
        self.status.fill(Status::Interrupted);
        self.rounds.fill(0);
        self.evaluations.fill(0);
        self.flags.fill(Flags::empty());
    }
}

impl<'a> Gathered<'a> {
    /// Gathers what the fits of some curves need.
    fn gather(&mut self, passage: &Passage<'a>, some: Range<usize>) {
        let Passage {
            curves,
            points,
            parameters,
            predictors,
            ..
        } = *passage;
        set_sizes(
            curves.y.slice(some.start * points..some.end * points),
            points,
            &mut self.sizes,
        );
        self.masked = curves.masked(some.clone(), points);
        self.promises.resize(some.len(), f64::NAN);
        self.status.resize(some.len(), 0);
        self.rounds.resize(some.len(), 0);
        let starts = curves.starts_of(some.clone(), parameters, &mut self.starts);
        self.prepared = passage.prepare(some.clone(), &self.sizes, starts);
        self.bounds = bounds(passage.fitter, curves, some.clone(), starts);
        curves.sigmas_of(some.clone(), points, &mut self.sigma);
        if curves.grid == Grid::Own {
            rows_of(&curves.x, some, predictors * points, &mut self.x);
        }
    }

    /// Returns the data of the fits of `some` curves, which have been gathered, their sizes, and their columns, which
    /// lie in `rows` and here.
    fn split<'s>(
        &'s mut self,
        passage: &'s Passage<'a>,
        some: Range<usize>,
        rows: &'s mut Rows<'_>,
    ) -> (SmallBatch<'s>, &'s [f64], SmallColumns<'s>) {
        let Passage {
            curves,
            points,
            parameters,
            predictors,
            ..
        } = *passage;
        let row = |values: &'s Values<'a>, length, copied: &'s Vec<f64>| {
            stored_rows(values, some.clone(), length).unwrap_or(copied)
        };
        let own_grid = curves.grid == Grid::Own;
        let prepared = self.prepared.as_ref();
        let batch = SmallBatch {
            x: if own_grid {
                row(&curves.x, predictors * points, &self.x)
            } else {
                &passage.x
            },
            own_grid,
            y: curves.y.slice(some.start * points..some.end * points),
            sigma: curves
                .sigma
                .as_ref()
                .map(|sigma| row(sigma, points, &self.sigma)),
            mask: self.masked.as_deref(),
            starts: prepared.map_or_else(
                || row(&curves.starts, parameters, &self.starts),
                |(starts, _)| starts,
            ),
            units: prepared.map(|(_, units)| &units[..]),
            bounds: slices(&self.bounds),
            first: some.start,
            numbers: curves
                .numbers
                .as_ref()
                .map(|numbers| &numbers[some.clone()]),
        };
        let columns = SmallColumns {
            parameters: rows.parameters,
            variances: rows.errors,
            correlations: rows.covariance.as_deref_mut(),
            chi2: rows.chi2,
            promises: &mut self.promises,
            status: &mut self.status,
            rounds: &mut self.rounds,
        };
        (batch, &self.sizes, columns)
    }
}

/// Lends lower and upper bounds.
fn slices(bounds: &Option<(Vec<f64>, Vec<f64>)>) -> Option<(&[f64], &[f64])> {
    bounds
        .as_ref()
        .map(|(lower, upper)| (&lower[..], &upper[..]))
}
