//! Recordings, which an objective hands to a device: plain data that names kernels and buffers.
//!
//! A recording describes one *linearisation* of a round's members: starting from the trial parameters it fills, arm by
//! arm, each member's χ², penalty, ln det C, gradient and normal matrix (see `docs/src/equations.md`). A device
//! executes it together with `step` and `compact` as one round; it does not know the model.

mod cost;
mod shared_data;

pub use crate::buffers::{Buffer, BufferId, Declared, Kind, Parameter, Scope, Values};
pub use crate::kernels::*;
pub use shared_data::SharedData;

/// The scalar of rows on the CPU device: f32 for networks, f64 for formulas. The GPU computes in f32.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[non_exhaustive]
pub enum Precision {
    #[default]
    F32,
    F64,
    /// As `F32`, but output layers multiply f16 numbers, summed in f32: two for each value, so that these are as exact
    /// as in `F32`, and one for each derivative.
    Mixed,
}

crate::words::named!(Precision, "precision", ["f32" => F32, "f64" => F64, "mixed" => Mixed]);

impl Precision {
    /// Returns the precision that values have: f32 in mixed precision, else the same.
    #[must_use]
    pub(crate) fn of_results(self) -> Precision {
        if self == Precision::Mixed {
            Precision::F32
        } else {
            self
        }
    }
}

/// One linearisation of a population.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub parameters: Vec<Parameter>,
    pub precision: Precision,
    /// Rows have no tangents, and only χ², penalty and ln det C are filled (`evaluate`).
    pub values_only: bool,
    /// The objective includes ln det C, besides χ² and penalty.
    pub marginalise: bool,
    /// Degrees of freedom, points − parameters, if the rows' noise is not known. A simplex's `fatol` is then in units
    /// of χ² over this.
    pub dof: Option<f64>,
    /// A high cost does not loosen `ftol`, because χ² is in units of the noise: true for spectra.
    pub caps_cost: bool,
    pub buffers: Vec<Buffer>,
    pub stages: Vec<Stage>,
    /// Data that the recording's populations share.
    pub shared_data: SharedData,
}

impl Recording {
    /// Returns whether every stage's estimator allows a last step whose end is not evaluated; all but Poisson's do.
    /// Poisson's likelihood may have no value there.
    pub fn trusts_steps(&self) -> bool {
        self.stages.iter().all(|stage| match stage {
            Stage::Estimate(stage) => stage.estimator.trusts_last_step(),
            _ => true,
        })
    }

    /// Returns whether any of the matrix products is of f16 numbers.
    #[cfg(feature = "gpu")]
    pub(crate) fn has_halves(&self) -> bool {
        self.stages.iter().any(|stage| match stage {
            Stage::Product(product) => product.is_of_halves(self.declared()),
            _ => false,
        })
    }

    /// Declares a buffer without values, of `length` elements for each one of its scope, and returns its id.
    pub fn buffer(
        &mut self,
        name: impl Into<String>,
        scope: Scope,
        kind: Kind,
        length: usize,
    ) -> BufferId {
        self.buffers.push(Buffer {
            name: name.into(),
            scope,
            kind,
            length,
            values: None,
        });
        BufferId(self.buffers.len() - 1)
    }

    /// Adds a buffer of constant values, of 32-bit integers or floating-point numbers, and returns its id.
    pub fn constant(&mut self, name: impl Into<String>, values: Values) -> BufferId {
        let kind = if matches!(values, Values::I32(_)) {
            Kind::Index
        } else {
            Kind::Float
        };
        self.constant_of(kind, name, values)
    }

    /// Adds a buffer of constant values that are stored as f16 numbers, and returns its id.
    pub fn half_constant(&mut self, name: impl Into<String>, values: Values) -> BufferId {
        self.constant_of(Kind::Half, name, values)
    }

    /// Adds a buffer of constant values, stored as numbers of the given kind, and returns its id.
    fn constant_of(&mut self, kind: Kind, name: impl Into<String>, values: Values) -> BufferId {
        self.buffers.push(Buffer {
            name: name.into(),
            scope: Scope::Constant,
            kind,
            length: values.len(),
            values: Some(values),
        });
        BufferId(self.buffers.len() - 1)
    }

    /// Returns the declaration of the buffer with this id.
    pub fn block(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0]
    }

    /// Returns the declared parameters and buffers, without the stages.
    pub fn declared(&self) -> Declared<'_> {
        Declared {
            parameters: &self.parameters,
            buffers: &self.buffers,
        }
    }
}
