//! What the stages of a round cost on paper: additions and multiplications, numbers read and written.
//!
//! Counted are the sums that a stage's definition asks for, an addition and a multiplication apart; functions, indices and what a
//! device does besides (padding, both sides of a symmetric matrix) are not.

use std::ops::Range;

use super::recording::{BufferId, Interpolation, Kind, Recording, Scope, Stage};
use super::triangle::packed_length;

/// What a device's time goes into, in the order of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Spectra and members, to the device.
    Upload,
    /// Labels, and layers before the last.
    Hidden,
    /// The last layer, or what takes a network's place.
    Template,
    /// Rotation, line spread, Doppler shift.
    Observe,
    /// Priors, continuum, sums over pixels.
    NormalMatrix,
    /// `step` and `halve`, or `simplex`.
    Step,
    Compact,
    /// Outcomes, to the host.
    Readback,
}

impl Work {
    pub const ALL: [Work; 8] = [
        Work::Upload,
        Work::Hidden,
        Work::Template,
        Work::Observe,
        Work::NormalMatrix,
        Work::Step,
        Work::Compact,
        Work::Readback,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Work::Upload => "upload",
            Work::Hidden => "hidden",
            Work::Template => "template",
            Work::Observe => "observe",
            Work::NormalMatrix => "normal matrix",
            Work::Step => "step",
            Work::Compact => "compact",
            Work::Readback => "readback",
        }
    }

    /// Of a recording's `number`-th stage: what comes before the last product of a network is hidden.
    pub fn of(recording: &Recording, number: usize) -> Work {
        let is_network = |stage: &&Stage| matches!(stage, Stage::Product(_) | Stage::Narrow(_) | Stage::Activate(_));
        let product_follows = || {
            let rest = recording.stages[number + 1..].iter().take_while(is_network);
            rest.into_iter().any(|stage| matches!(stage, Stage::Product(_)))
        };
        match &recording.stages[number] {
            Stage::Labels(_) => Work::Hidden,
            Stage::Narrow(_) => Work::Hidden,
            Stage::Product(_) | Stage::Activate(_) if product_follows() => Work::Hidden,
            Stage::Product(_) | Stage::Activate(_) | Stage::PerPixel(_) | Stage::Custom(_) => Work::Template,
            Stage::Broaden(_) | Stage::Prefilter(_) | Stage::Resample(_) | Stage::Resolve(_) => Work::Observe,
            Stage::Prior(_) | Stage::Continuum(_) | Stage::Normal(_) | Stage::Estimate(_) => Work::NormalMatrix,
        }
    }
}

/// Operations and numbers of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Additions and multiplications, a member.
    pub operations: f64,
    /// Numbers read and written, a member.
    pub numbers: f64,
    /// Numbers that all members of a call share: weights.
    pub shared: f64,
}

impl Cost {
    /// Of one stage. R rows, I inner, C columns, N pixels, T terms, P tangents, D diagonals, L labels, H hidden:
    ///
    /// | stage | operations |
    /// |---|---|
    /// | prior | 2 numbers of the hulls |
    /// | labels | R L |
    /// | product | 2 R I C |
    /// | activate | (R + 1) C |
    /// | per_pixel | 2 R H (L + 1) C |
    /// | prefilter | 2 · 25 R C |
    /// | resample | 2 · taps R N, R with that of the velocity |
    /// | resolve | 2 D R N |
    /// | continuum | (T (T + 1) + 2 T) N |
    /// | normal | ((P + 1) (P + 2) + 2 P T) N |
    /// | estimate | (P + 1) (P + 2) N |
    ///
    /// `broaden`'s sums depend on the member's vsini and a user's model is its own: no operations are counted.
    pub fn of(recording: &Recording, stage: &Stage) -> Cost {
        let constant = |id: BufferId| recording.block(id).scope == Scope::Constant;
        let length = |id: BufferId| recording.block(id).length;
        let (operations, numbers, shared) = match stage {
            Stage::Prior(s) => {
                let facets: usize = s.hulls.iter().map(|hull| hull.facets.len()).sum();
                (2 * facets, 4 * recording.parameters.len(), facets)
            }
            Stage::Labels(s) => {
                let rows = if s.derivatives { 1 + super::recording::tangents(&s.inputs).len() } else { 1 };
                (rows * s.inputs.len(), rows * s.stride, 0)
            }
            Stage::Product(s) => {
                // two halves are a number
                let own = if recording.block(s.weight).kind == Kind::Half { 2 } else { 1 };
                let numbers = s.rows * (s.inner / own + s.columns);
                (2 * s.rows * s.inner * s.columns, numbers, s.inner * s.columns / own)
            }
            Stage::Narrow(s) => (0, s.length + s.length / 2, 0),
            Stage::Activate(s) => {
                let constants = if s.affine.is_some() { 3 } else { 1 };
                ((s.rows + 1) * s.columns, 2 * s.rows * s.columns, constants * s.columns)
            }
            Stage::PerPixel(s) => {
                let weights = [s.w0, s.b0, s.w1, s.b1].into_iter().map(length).sum();
                let operations = 2 * s.rows * s.hidden * (s.labels + 1) * s.columns;
                (operations, s.rows * (s.input_stride + s.columns), weights)
            }
            Stage::Broaden(s) => (0, (s.rows + s.output_rows()) * s.columns, 0),
            Stage::Prefilter(s) => (50 * s.rows * s.columns, 2 * s.rows * s.columns, 0),
            Stage::Resample(s) => {
                let taps = if s.interpolation == Interpolation::Cubic { 4 } else { 2 };
                let output = s.output_rows() * s.pixels;
                (2 * taps * output, s.rows * s.input_columns + output + 2 * s.pixels, 0)
            }
            Stage::Resolve(s) => {
                let (rows, matrix) = (2 * s.rows * s.pixels, s.diagonals * s.pixels);
                let is_shared = constant(s.matrix);
                let own = if is_shared { rows } else { rows + matrix };
                (s.diagonals * rows, own, if is_shared { matrix } else { 0 })
            }
            Stage::Continuum(s) => {
                let terms = s.basis.terms;
                (terms * (terms + 3) * s.pixels, (3 + terms) * s.pixels, 0)
            }
            Stage::Normal(s) => {
                let terms = s.continuum.map_or(0, |(basis, _)| basis.terms);
                let columns = s.columns.len();
                let products = (columns + 1) * (columns + 2) + 2 * columns * terms;
                (products * s.pixels, (3 + columns + terms) * s.pixels, 0)
            }
            Stage::Estimate(s) => {
                let columns = s.columns.len();
                ((columns + 1) * (columns + 2) * s.pixels, (3 + columns) * s.pixels, 0)
            }
            Stage::Custom(s) => (0, (s.rows + s.predictors) * s.pixels, 0),
        };
        Cost { operations: operations as f64, numbers: numbers as f64, shared: shared as f64 }
    }

    /// What the kernel of these stages works at, by its last one, and its cost: what passes between them is neither written nor read,
    /// and nothing is read twice.
    pub fn of_kernel(recording: &Recording, stages: Range<usize>) -> (Work, Cost) {
        let work = Work::of(recording, stages.end - 1);
        let stages = &recording.stages[stages];
        let mut sum = Cost::default();
        for stage in stages {
            let Cost { operations, numbers, shared } = Cost::of(recording, stage);
            sum.operations += operations;
            sum.numbers += numbers;
            sum.shared += shared;
        }
        for pair in stages.windows(2) {
            let saved = match (&pair[0], &pair[1]) {
                (Stage::Product(_), Stage::Activate(s)) => 2 * s.rows * s.columns,
                // a continuum reads one row of what normal reads
                (Stage::Resample(s), Stage::Continuum(_)) => s.output_rows() * s.pixels,
                (Stage::Resample(s), _) => 2 * s.output_rows() * s.pixels,
                (Stage::Continuum(s), Stage::Normal(n)) if stages.len() == 3 => {
                    (3 + s.basis.terms + 1 + n.columns.len()) * s.pixels
                }
                (Stage::Continuum(s), _) => (3 + s.basis.terms) * s.pixels,
                _ => 0,
            };
            sum.numbers -= saved as f64;
        }
        (work, sum)
    }

    /// Of a step in P parameters: the Cholesky factor and two triangular solves, P³/3 + 2 P², and the member's state, read and written.
    pub fn of_step(parameters: usize) -> Cost {
        let p = parameters as f64;
        let state = packed_length(parameters) as f64 + 4.0 * p;
        Cost { operations: p * p * p / 3.0 + 2.0 * p * p, numbers: 2.0 * state, shared: 0.0 }
    }

    /// A status and a place.
    pub const COMPACT: Cost = Cost { operations: 0.0, numbers: 2.0, shared: 0.0 };
}
