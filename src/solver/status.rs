//! Status of one fit: the way in which it ended, as a value, never an exception.

/// Status with which one fit ended. 0–4 are scipy `least_squares`' own codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
#[non_exhaustive]
pub enum Status {
    /// Stopped: budget.
    MaxRounds = 0,
    /// Converged: gradient.
    Gtol = 1,
    /// Converged: objective.
    Ftol = 2,
    /// Converged: step.
    Xtol = 3,
    /// Converged: objective and step.
    FtolXtol = 4,
    /// The spectrum cannot be fitted; the row names the cause.
    BadInput = -1,
    /// The run was cancelled, or its time was over, before this fit ended.
    Interrupted = -2,
    /// The normal matrix could not be solved at any damping; or a parameter has no effect where the fit ended.
    Singular = -3,
    /// The model is not finite at the start; or it failed or panicked, as the message of a curve's fit says.
    NotFinite = -4,
    /// No acceptable step after the allowed rejections.
    Stalled = -5,
}

impl std::fmt::Display for Status {
    /// Writes the name.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl Status {
    /// Every status.
    pub(crate) const ALL: [Status; 10] = [
        Status::Gtol,
        Status::Ftol,
        Status::Xtol,
        Status::FtolXtol,
        Status::MaxRounds,
        Status::BadInput,
        Status::Interrupted,
        Status::Singular,
        Status::NotFinite,
        Status::Stalled,
    ];

    /// Returns the status's number in the result table: 1 to 4 converged, 0 out of rounds, negative failed.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// Returns the status with this number in the result table; `None` for numbers that name none, such as poison.
    #[doc(hidden)]
    pub fn from_code(code: i32) -> Option<Status> {
        Some(match code {
            0 => Status::MaxRounds,
            1 => Status::Gtol,
            2 => Status::Ftol,
            3 => Status::Xtol,
            4 => Status::FtolXtol,
            -1 => Status::BadInput,
            -2 => Status::Interrupted,
            -3 => Status::Singular,
            -4 => Status::NotFinite,
            -5 => Status::Stalled,
            _ => return None,
        })
    }

    /// Returns the status's name in the result table.
    pub const fn name(self) -> &'static str {
        match self {
            Status::MaxRounds => "max_rounds",
            Status::Gtol => "gtol",
            Status::Ftol => "ftol",
            Status::Xtol => "xtol",
            Status::FtolXtol => "ftol_xtol",
            Status::BadInput => "bad_input",
            Status::Interrupted => "interrupted",
            Status::Singular => "singular",
            Status::NotFinite => "not_finite",
            Status::Stalled => "stalled",
        }
    }

    /// Returns the meaning of the status, in the words of `docs/src/results.md`, the report and the tables' key
    /// `popfit.status`.
    pub const fn meaning(self) -> &'static str {
        match self {
            Status::MaxRounds => "not converged within the allowed rounds",
            Status::Gtol => "converged: the gradient is close to zero",
            Status::Ftol => "converged: the objective no longer falls",
            Status::Xtol => "converged: the parameters no longer change",
            Status::FtolXtol => "converged: neither the objective nor the parameters change",
            Status::BadInput => "not fitted; `status_text` is the cause",
            Status::Interrupted => "cancelled",
            Status::Singular => "the normal matrix could not be solved at any damping",
            Status::NotFinite => "the model is not finite at the start",
            Status::Stalled => {
                "no acceptable step after the allowed rejections, or an end above a minimum"
            }
        }
    }

    /// Returns whether the fit converged (codes 1–4).
    pub const fn is_success(self) -> bool {
        self.code() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_poison_is_no_status() {
        for status in Status::ALL {
            assert_eq!(Status::from_code(status.code()), Some(status));
        }
        assert_eq!(Status::from_code(i32::MIN), None);
    }
}
