//! The cost of a kernel on paper: additions and multiplications, numbers read and written.
//!
//! A kernel counts the sums of its definition, additions and multiplications separately. Functions, indices and
//! additional work of a device (padding, both sides of a symmetric matrix) are not counted.

use crate::math::triangle::packed_length;

/// The kinds of work that a device's time goes into, in the order of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Spectra and members, to the device.
    Upload,
    /// Labels, and layers before the last.
    Hidden,
    /// The last layer, or a model without a network.
    Template,
    /// Rotation, line spread, Doppler shift.
    Observe,
    /// Priors, continuum, sums over pixels.
    NormalMatrix,
    /// `step` and `halve`.
    Step,
    Compact,
    /// Outcomes, to the host.
    Readback,
}

impl Work {
    /// All kinds, in their order.
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

    /// Returns the name of the kind of work, as profiles print it.
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
}

/// Operations and numbers of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Additions and multiplications per member.
    pub operations: f64,
    /// Numbers read and written per member.
    pub numbers: f64,
    /// Numbers that all members of a call share, such as weights.
    pub shared: f64,
}

impl Cost {
    /// Returns the cost of so many operations, and so many numbers read or written, per member, without numbers that
    /// all members share.
    pub const fn new(operations: usize, numbers: usize) -> Cost {
        Cost {
            operations: operations as f64,
            numbers: numbers as f64,
            shared: 0.0,
        }
    }

    /// Returns this cost with so many numbers, such as weights, that all members of a call share.
    #[must_use]
    pub const fn with_shared(self, shared: usize) -> Cost {
        Cost {
            shared: shared as f64,
            ..self
        }
    }

    /// Returns the cost of a step in P parameters: P³/3 + 2 P² operations for the Cholesky factor and two triangular
    /// solves, and the member's state, read and written.
    pub fn of_step(parameters: usize) -> Cost {
        let p = parameters as f64;
        let state = packed_length(parameters) as f64 + 4.0 * p;
        Cost {
            operations: p * p * p / 3.0 + 2.0 * p * p,
            numbers: 2.0 * state,
            shared: 0.0,
        }
    }

    /// Cost of compaction: a status and a place.
    pub const COMPACT: Cost = Cost {
        operations: 0.0,
        numbers: 2.0,
        shared: 0.0,
    };
}

/// Cost of a kernel for one member, and the kind of work as which it counts.
#[derive(Clone, Copy, Debug)]
pub struct KernelCost {
    pub work: Work,
    pub cost: Cost,
}
