//! Layout of a member's numbers in the state and control buffers. All offsets are defined here: shaders get them as
//! generated constants.

use crate::kernels::source::Constants;
use crate::math::triangle::packed_length;
use crate::solver::{GaveWay, Status, basin};

/// Status of a member that is still active: no status of the result table.
pub(super) const RUNNING_STATUS: i32 = i32::MIN;
/// Bit pattern that fills memory before it is written: a NaN as f32, no status as i32.
pub(super) const POISON: u32 = 0x7fc0_0000;

/// A field of the state buffer (f32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateField {
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
const STATE_FIELDS: [(StateField, &str); 17] = [
    (StateField::TrialParameters, "TRIAL_PARAMETERS"),
    (StateField::TrialChi2, "TRIAL_CHI2"),
    (StateField::TrialPenalty, "TRIAL_PENALTY"),
    (StateField::TrialLnDet, "TRIAL_LN_DET"),
    (StateField::TrialLoss, "TRIAL_LOSS"),
    (StateField::TrialGradient, "TRIAL_GRADIENT"),
    (StateField::TrialNormal, "TRIAL_NORMAL"),
    (StateField::Accepted, "ACCEPTED"),
    (StateField::Chi2, "CHI2"),
    (StateField::Penalty, "PENALTY"),
    (StateField::LnDet, "LN_DET"),
    (StateField::Loss, "LOSS"),
    (StateField::Gradient, "GRADIENT"),
    (StateField::Normal, "NORMAL"),
    (StateField::Damping, "DAMPING"),
    (StateField::DampingFactor, "DAMPING_FACTOR"),
    (StateField::PredictedReduction, "PREDICTED_REDUCTION"),
];

/// Cells of the control buffer (i32), with their names in WGSL.
pub(super) const CONTROL_CELLS: [&str; 7] = [
    "STATUS",
    "ROUNDS",
    "REJECTIONS",
    "MODE",
    "FINISHING",
    "GAVE_WAY",
    "PAUSE",
];
pub(super) const STATUS_CELL: usize = 0;
pub(super) const ROUNDS_CELL: usize = 1;
pub(super) const MODE_CELL: usize = 3;
pub(super) const GAVE_WAY_CELL: usize = 5;
pub(super) const PAUSE_CELL: usize = 6;

/// Value of the cell MODE of a member that is only evaluated, and ends in its first round.
pub(super) const EVALUATING_MODE: i32 = 4;

/// Number of words before the slots in the list of members: how many take part, and how many are active.
pub(super) const LIST_HEADER_WORDS: usize = 2;

/// Values of the cell GAVE_WAY, with their names in WGSL.
const VERDICTS: [(&str, Option<GaveWay>); 3] = [
    ("GOES_ON", None),
    ("SAME_BASIN_CODE", Some(GaveWay::SameBasin)),
    ("HOPELESS_CODE", Some(GaveWay::Hopeless)),
];

/// Returns why a member gave way, from the number in its control cell GAVE_WAY; `None` if it did not.
pub(super) fn verdict_from_code(code: i32) -> Option<GaveWay> {
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
    constants.signed("RUNNING", RUNNING_STATUS);
    for (name, status) in STATUSES {
        constants.signed(name, status.code());
    }
}

/// A population of n starts has room for n / SPARE_SPECTRA more spectra, which wait on the device for a start's place.
pub(super) const SPARE_SPECTRA: usize = 2;

/// Number of sums over pixels of a robust loss.
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
    fn field_length(self, field: StateField) -> usize {
        match field {
            StateField::TrialParameters
            | StateField::TrialGradient
            | StateField::Accepted
            | StateField::Gradient => self.parameters,
            StateField::TrialNormal | StateField::Normal => packed_length(self.parameters),
            StateField::TrialLoss | StateField::Loss => LOSS_SUMS,
            _ => 1,
        }
    }

    /// Returns how many numbers each member has in the state buffer.
    pub fn state_length(self) -> usize {
        STATE_FIELDS
            .iter()
            .map(|(field, _)| self.field_length(*field))
            .sum()
    }

    /// Returns the offset of a field in the state buffer, counted in arrays of `capacity` numbers.
    pub fn field_offset(self, field: StateField) -> usize {
        STATE_FIELDS
            .iter()
            .take_while(|(earlier, _)| *earlier != field)
            .map(|(earlier, _)| self.field_length(*earlier))
            .sum()
    }

    /// Returns the index in the state buffer of element `index` of a field of the member in a slot.
    pub fn element_index(self, field: StateField, index: usize, slot: usize) -> usize {
        (self.field_offset(field) + index) * self.capacity + slot
    }

    /// Returns how many spectra have room. They are more than members, because some may wait for a start's place.
    pub fn spectra_capacity(self) -> usize {
        self.capacity + self.capacity / SPARE_SPECTRA
    }

    /// Returns how many words a transfer of all members has.
    pub fn transfer_length(self) -> usize {
        1 + self.capacity * (1 + self.state_length() + CONTROL_CELLS.len())
    }

    /// Returns the number of elements of the list of members. They are the header, the slots of active members, each
    /// slot's spectrum and the next start of its group, and room for `compact`.
    pub fn members_length(self) -> usize {
        LIST_HEADER_WORDS + 4 * self.capacity
    }

    /// Returns the WGSL constants that all shaders of a population share: sizes, offsets and the solver's thresholds.
    pub fn shader_constants(self) -> Constants {
        let mut out = Constants::default();
        out.unsigned("PARAMETERS", self.parameters);
        out.unsigned("CAPACITY", self.capacity);
        out.unsigned(
            "TRIAL_SUMS",
            self.field_offset(StateField::Accepted) - self.field_offset(StateField::TrialChi2),
        );
        out.unsigned("LOSS_SUMS", LOSS_SUMS);
        for (field, name) in STATE_FIELDS {
            out.unsigned(name, self.field_offset(field));
        }
        for (cell, name) in CONTROL_CELLS.iter().enumerate() {
            out.unsigned(name, cell);
        }
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
        out.signed("EVALUATING", EVALUATING_MODE);
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
    fn sums_of_the_trial_and_the_accepted_point_have_the_same_order() {
        let layout = Layout {
            parameters: 5,
            capacity: 7,
        };
        let shift =
            layout.field_offset(StateField::Chi2) - layout.field_offset(StateField::TrialChi2);
        for (trial, accepted) in [
            (StateField::TrialPenalty, StateField::Penalty),
            (StateField::TrialLnDet, StateField::LnDet),
            (StateField::TrialLoss, StateField::Loss),
            (StateField::TrialGradient, StateField::Gradient),
            (StateField::TrialNormal, StateField::Normal),
        ] {
            assert_eq!(
                layout.field_offset(accepted) - layout.field_offset(trial),
                shift
            );
        }
        assert_eq!(layout.state_length(), 2 * (5 + 7 + 5 + 15) + 3);
    }

    #[test]
    fn poison_is_no_status_and_no_number() {
        assert_eq!(Status::from_code(RUNNING_STATUS), None);
        assert_eq!(Status::from_code(POISON as i32), None);
        assert!(f32::from_bits(POISON).is_nan());
    }
}
