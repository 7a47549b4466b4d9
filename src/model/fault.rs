//! Reasons why a spectrum cannot be fitted.

use super::ModelArm;
use super::sampling::GridFault;

/// Reason why a spectrum cannot be fitted; `status_text` of a `bad_input` row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    NonFiniteInput,
    BadWeight,
    NoData,
    Underdetermined,
    BadWavelength,
    NoOverlap,
    BadStart,
    BadBounds,
    BadPrior,
    StartOutOfBounds,
}

impl Cause {
    /// Returns the name of the cause in the result table.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::NonFiniteInput => "non_finite_input",
            Cause::BadWeight => "bad_weight",
            Cause::NoData => "no_data",
            Cause::Underdetermined => "underdetermined",
            Cause::BadWavelength => "bad_wavelength",
            Cause::NoOverlap => "no_overlap",
            Cause::BadStart => "bad_start",
            Cause::BadBounds => "bad_bounds",
            Cause::BadPrior => "bad_prior",
            Cause::StartOutOfBounds => "start_out_of_bounds",
        }
    }
}

/// A fault and where it is: `detail` names arm and pixel.
#[derive(Clone, Debug)]
pub struct Fault {
    pub cause: Cause,
    pub detail: String,
}

impl Fault {
    /// Returns a fault of a spectrum's own grid.
    pub fn of_grid(arm: &ModelArm, fault: &GridFault) -> Fault {
        let cause = match fault {
            GridFault::Wavelength { .. } => Cause::BadWavelength,
            GridFault::NoOverlap { .. } => Cause::NoOverlap,
        };
        Fault { cause, detail: format!("{}{fault}", place(arm)) }
    }
}

/// Returns the arm, for messages; nothing when it has no name.
pub fn place(arm: &ModelArm) -> String {
    if arm.name.is_empty() { String::new() } else { format!("arm {}, ", arm.name) }
}
