//! Layout of a member's numbers in the state and control buffers. The one source of offsets: shaders get them as
//! generated constants.

use crate::kernels::source::Constants;
use crate::math::triangle::packed_length;
use crate::solver::simplex::TRIALS_PER_SIMPLEX as LANES;
use crate::solver::{GaveWay, Status, basin};

/// Status of a member that is still active: no status of the result table.
pub(super) const RUNNING: i32 = i32::MIN;
/// Bit pattern that fills what nobody has written: a NaN as f32, no status as i32.
pub(super) const POISON: u32 = 0x7fc0_0000;

/// Values of a simplex's vertices that are none: comparisons do not see NaN. Not known yet; the model is not finite
/// there.
pub(super) const PENDING: f32 = 3e38;
pub(super) const NO_VALUE: f32 = 2e38;

/// A field of the state buffer (f32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    TrialParameters,
    TrialChi2,
    TrialPenalty,
    TrialLnDet,
    TrialLoss,
    TrialGradient,
    TrialNormal,
    Accepted,
    Chi2,
    Penalty,
    LnDet,
    Loss,
    Gradient,
    Normal,
    Damping,
    DampingFactor,
    PredictedReduction,
}

/// Fields in their order, with their names in WGSL. The sums of the trial and of the accepted point have the same
/// order.
const FIELDS: [(Field, &str); 17] = [
    (Field::TrialParameters, "TRIAL_PARAMETERS"),
    (Field::TrialChi2, "TRIAL_CHI2"),
    (Field::TrialPenalty, "TRIAL_PENALTY"),
    (Field::TrialLnDet, "TRIAL_LN_DET"),
    (Field::TrialLoss, "TRIAL_LOSS"),
    (Field::TrialGradient, "TRIAL_GRADIENT"),
    (Field::TrialNormal, "TRIAL_NORMAL"),
    (Field::Accepted, "ACCEPTED"),
    (Field::Chi2, "CHI2"),
    (Field::Penalty, "PENALTY"),
    (Field::LnDet, "LN_DET"),
    (Field::Loss, "LOSS"),
    (Field::Gradient, "GRADIENT"),
    (Field::Normal, "NORMAL"),
    (Field::Damping, "DAMPING"),
    (Field::DampingFactor, "DAMPING_FACTOR"),
    (Field::PredictedReduction, "PREDICTED_REDUCTION"),
];

/// Cells of the control buffer (i32), with their names in WGSL.
pub(super) const CONTROL: [&str; 9] = [
    "STATUS",
    "ROUNDS",
    "REJECTIONS",
    "MODE",
    "FINISHING",
    "GAVE_WAY",
    "RESTARTS",
    "PAUSE",
    "EVALUATIONS",
];
pub(super) const STATUS: usize = 0;
pub(super) const ROUNDS: usize = 1;
pub(super) const MODE: usize = 3;
pub(super) const GAVE_WAY: usize = 5;
pub(super) const PAUSE: usize = 7;
pub(super) const EVALUATIONS: usize = 8;

/// Value of the cell MODE of a member that ends in its first round.
pub(super) const EVALUATING: i32 = 4;

/// Numbers before the slots in the list of members.
pub(super) const HEAD: usize = 2;

/// Values of the cell GAVE_WAY, with their names in WGSL.
const VERDICTS: [(&str, Option<GaveWay>); 3] = [
    ("GOES_ON", None),
    ("SAME_BASIN_CODE", Some(GaveWay::SameBasin)),
    ("HOPELESS_CODE", Some(GaveWay::Hopeless)),
];

/// Returns why a member gave way, from the number in its control cell GAVE_WAY; `None` if it did not.
pub(super) fn verdict(code: i32) -> Option<GaveWay> {
    usize::try_from(code)
        .ok()
        .and_then(|k| VERDICTS.get(k))
        .and_then(|(_, verdict)| *verdict)
}

/// Statuses that `step` and `small` write, with their names in WGSL.
const STATUSES: [(&str, Status); 8] = [
    ("MAX_ROUNDS_STATUS", Status::MaxRounds),
    ("GTOL_STATUS", Status::Gtol),
    ("FTOL_STATUS", Status::Ftol),
    ("XTOL_STATUS", Status::Xtol),
    ("FTOL_XTOL_STATUS", Status::FtolXtol),
    ("SINGULAR", Status::Singular),
    ("NOT_FINITE", Status::NotFinite),
    ("STALLED", Status::Stalled),
];

/// Adds the WGSL constants of the statuses.
pub(super) fn declare_statuses(constants: &mut Constants) {
    constants.signed("RUNNING", RUNNING);
    for (name, status) in STATUSES {
        constants.signed(name, status.code());
    }
}

/// A population of n starts has room for n / SPARE_SPECTRA more spectra, which wait on the device for a start's place.
pub(super) const SPARE_SPECTRA: usize = 2;

/// Sums over pixels of a robust loss.
const LOSS_SUMS: usize = 4;

/// The layout of a population.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub parameters: usize,
    pub capacity: usize,
}

impl Layout {
    /// Returns the number of floats that a field takes per member: P, P (P + 1) / 2 for a packed matrix, 4 for the sums
    /// of a loss, or 1.
    fn length(self, field: Field) -> usize {
        match field {
            Field::TrialParameters | Field::TrialGradient | Field::Accepted | Field::Gradient => {
                self.parameters
            }
            Field::TrialNormal | Field::Normal => packed_length(self.parameters),
            Field::TrialLoss | Field::Loss => LOSS_SUMS,
            _ => 1,
        }
    }

    /// Returns how many numbers each member has in the state buffer.
    pub fn state_length(self) -> usize {
        FIELDS.iter().map(|(field, _)| self.length(*field)).sum()
    }

    /// Returns where a field begins in the state buffer, counted in arrays of `capacity` numbers.
    pub fn offset(self, field: Field) -> usize {
        FIELDS
            .iter()
            .take_while(|(other, _)| *other != field)
            .map(|(other, _)| self.length(*other))
            .sum()
    }

    /// Returns the index in the state buffer of element `index` of a field of the member in a slot.
    pub fn at(self, field: Field, index: usize, slot: usize) -> usize {
        (self.offset(field) + index) * self.capacity + slot
    }

    /// Returns how many spectra there is room for: some may wait for a start's place.
    pub fn spectra(self) -> usize {
        self.capacity + self.capacity / SPARE_SPECTRA
    }

    /// Returns how many words a transfer of all members has.
    pub fn transfer_length(self) -> usize {
        let of_simplices = self.simplices() * (1 + self.simplex_length());
        2 + self.capacity * (1 + self.state_length() + CONTROL.len()) + of_simplices
    }

    /// Returns how many simplices the capacity holds, each of which takes several members.
    pub fn simplices(self) -> usize {
        self.capacity / LANES
    }

    /// Returns how many numbers a simplex takes: vertices, values, two objectives at its last spreads, and a tolerance.
    pub fn simplex_length(self) -> usize {
        self.coarse_fatol() + 1
    }

    /// Returns where, in a simplex's numbers, the values of its vertices begin, behind P + 1 vertices of P coordinates.
    pub fn values(self) -> usize {
        (self.parameters + 1) * self.parameters
    }

    /// Returns where, in a simplex's numbers, the objectives at which it was last spread and the time before are.
    pub fn spread_at(self) -> usize {
        self.values() + self.parameters + 1
    }

    /// Returns where, in a simplex's numbers, the tolerance of its coarse search is.
    pub fn coarse_fatol(self) -> usize {
        self.spread_at() + 2
    }

    /// Returns the number of elements of the list of members. They are the numbers of those that take part in the round
    /// and of all that are active, their slots, every slot's spectrum and the next of its group, and room for
    /// `compact`.
    pub fn members_length(self) -> usize {
        HEAD + 4 * self.capacity
    }

    /// Returns the WGSL constants that all shaders of a population share: sizes, offsets and the solver's thresholds.
    pub fn constants(self) -> Constants {
        let mut out = Constants::default();
        out.unsigned("PARAMETERS", self.parameters);
        out.unsigned("CAPACITY", self.capacity);
        out.unsigned(
            "TRIAL_SUMS",
            self.offset(Field::Accepted) - self.offset(Field::TrialChi2),
        );
        out.unsigned("LOSS_SUMS", LOSS_SUMS);
        for (field, name) in FIELDS {
            out.unsigned(name, self.offset(field));
        }
        for (cell, name) in CONTROL.iter().enumerate() {
            out.unsigned(name, cell);
        }
        out.unsigned("LANES", LANES);
        out.unsigned("SIMPLICES", self.simplices());
        out.unsigned("VALUES", self.values());
        out.unsigned("SPREAD_AT", self.spread_at());
        out.unsigned("COARSE_FATOL", self.coarse_fatol());
        out.float("PENDING", PENDING.into());
        out.float("NO_VALUE", NO_VALUE.into());
        out.signed("FIRST_ROUND", basin::FIRST_ROUND as i32);
        out.signed("HOPELESS_ROUND", basin::HOPELESS_ROUND as i32);
        out.signed("PAUSE_ROUNDS", basin::PAUSE_ROUNDS as i32);
        out.float("SETTLED_SHARE", basin::SETTLED_SHARE);
        out.float("NEARER_SHARE", basin::NEARER_SHARE);
        out.float("LEAST_REDUCTION_SHARE", basin::LEAST_REDUCTION_SHARE);
        out.float("SAME_BASIN_ERROR", basin::SAME_BASIN_ERROR);
        out.float("GAIN_FACTOR", basin::GAIN_FACTOR);
        out.float("LEAST_RISE", basin::LEAST_RISE);
        out.float("EQUAL_COSTS", basin::EQUAL_COSTS);
        declare_statuses(&mut out);
        out.signed("SEARCHING", 0);
        out.signed("FINISHING_MODE", 1);
        out.signed("RELEASED", 2);
        out.signed("STRIDING", 3);
        out.signed("EVALUATING", EVALUATING);
        for (code, (name, _)) in (0..).zip(VERDICTS) {
            out.signed(name, code);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_both_points_have_the_same_order() {
        let layout = Layout {
            parameters: 5,
            capacity: 7,
        };
        let shift = layout.offset(Field::Chi2) - layout.offset(Field::TrialChi2);
        for (trial, accepted) in [
            (Field::TrialPenalty, Field::Penalty),
            (Field::TrialLnDet, Field::LnDet),
            (Field::TrialLoss, Field::Loss),
            (Field::TrialGradient, Field::Gradient),
            (Field::TrialNormal, Field::Normal),
        ] {
            assert_eq!(layout.offset(accepted) - layout.offset(trial), shift);
        }
        assert_eq!(layout.state_length(), 2 * (5 + 7 + 5 + 15) + 3);
    }

    #[test]
    fn poison_is_no_status_and_no_number() {
        assert_eq!(Status::from_code(RUNNING), None);
        assert_eq!(Status::from_code(POISON as i32), None);
        assert!(f32::from_bits(POISON).is_nan());
    }
}
