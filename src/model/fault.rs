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
    TooManyExposures,
}

impl Cause {
    /// Returns the word for this cause in the result table, such as `no_data`.
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
            Cause::TooManyExposures => "too_many_exposures",
        }
    }
}

/// A reason why a spectrum cannot be fitted, with its place: `detail` names the arm and the pixel.
#[derive(Clone, Debug)]
pub struct SpectrumFault {
    pub cause: Cause,
    pub detail: String,
}

impl SpectrumFault {
    /// Makes the fault of a spectrum whose wavelengths are invalid or do not overlap the arm's template.
    pub fn from_grid(arm: &ModelArm, fault: &GridFault) -> SpectrumFault {
        let cause = match fault {
            GridFault::Wavelength { .. } => Cause::BadWavelength,
            GridFault::NoOverlap { .. } => Cause::NoOverlap,
        };
        SpectrumFault {
            cause,
            detail: format!("{}{fault}", describe_place(arm)),
        }
    }
}

/// Returns `arm NAME, ` as the beginning of a message, or empty text if the arm has no name.
pub fn describe_place(arm: &ModelArm) -> String {
    if arm.name.is_empty() {
        String::new()
    } else {
        format!("arm {}, ", arm.name)
    }
}
