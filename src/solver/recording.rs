//! What an objective hands to a device: plain data that names kernels and buffers.
//!
//! A recording describes one *linearisation* of a round's members: starting from the trial parameters it fills, arm by arm,
//! each member's χ², penalty, ln det C, gradient and normal matrix (see `docs/src/equations.md`). A device executes it together with
//! `step` and `compact` as one round; it knows nothing of what is fitted.
//!
//! Rows: a member's block of `rows` × `stride` numbers, row 0 the value, rows 1… its tangents by the solver's parameters.

mod custom;
mod kin;
mod label;
mod observe;

use std::sync::Arc;

use super::Estimator;

pub use custom::{Custom, CustomFunction, CustomInput, Limits, Member, pointwise};
pub use kin::Kin;
pub use label::{LabelInput, Source, Transform, tangents};
pub use observe::{Broaden, Interpolation, Prefilter, Resample, Resolve, Rotation, Segment, Velocity};

/// Speed of light, km/s.
pub const LIGHT: f64 = 299_792.458;

/// Names a buffer of a [`Recording`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(pub usize);

/// How many blocks of `length` elements a buffer holds, and who fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One block, filled when the population is made (network weights).
    Constant,
    /// One block, filled by every [`Batch`](super::device::Batch) (a wavelength grid that all its spectra share).
    Batch,
    /// One block a spectrum, filled by every [`Batch`](super::device::Batch).
    Spectrum,
    /// One block an active member, scratch that kernels write.
    Member,
}

/// Elements of a buffer on the host.
#[derive(Clone, Debug)]
pub enum Values {
    F32(Arc<Vec<f32>>),
    F64(Arc<Vec<f64>>),
    I32(Arc<Vec<i32>>),
}

impl Values {
    pub fn len(&self) -> usize {
        match self {
            Values::F32(v) => v.len(),
            Values::F64(v) => v.len(),
            Values::I32(v) => v.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn bytes(&self) -> usize {
        if matches!(self, Values::F64(_)) { 8 * self.len() } else { 4 * self.len() }
    }
}

/// What a buffer's elements are on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// f32 on the GPU; on the CPU the recording's [`Precision`].
    Float,
    /// i32.
    Index,
    /// f16 on the GPU, two in 32 bits; on the CPU a [`Float`](Kind::Float) that f16 could hold.
    Half,
}

#[derive(Clone, Debug)]
pub struct Buffer {
    pub name: String,
    pub scope: Scope,
    pub kind: Kind,
    /// Elements in one block.
    pub length: usize,
    /// Contents of a [`Scope::Constant`].
    pub values: Option<Values>,
}

/// The scalar of rows on the CPU device: f32 for networks, f64 for formulas. The GPU computes in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Precision {
    #[default]
    F32,
    F64,
    /// First rounds whose output layers are products of f16 numbers, summed in f32; the last rounds, and all results, are those of
    /// `F32`.
    Mixed,
}

crate::words::named!(Precision, "precision", ["f32" => F32, "f64" => F64, "mixed" => Mixed]);

impl Precision {
    /// That of the last rounds.
    #[must_use]
    pub(crate) fn of_results(self) -> Precision {
        if self == Precision::Mixed { Precision::F32 } else { self }
    }
}

/// A parameter of the solver: the physical value is `origin + scale · u`, `u` what the solver steps in.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub origin: f64,
    pub scale: f64,
}

/// Elementwise function of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Activation {
    Silu,
    /// Slope 0.01 below zero.
    LeakyRelu,
    Relu,
    Sigmoid,
    Tanh,
    /// x Φ(x), with the error function.
    Gelu,
    Identity,
    /// exp(clamp(x, ±clip)); f32 clips at min(clip, 80).
    Exp {
        clip: f64,
    },
}

impl Activation {
    /// Those of hidden layers, as emulator and model files call them.
    pub const NAMES: &[(&str, Activation)] = &[
        ("silu", Activation::Silu),
        ("leaky_relu", Activation::LeakyRelu),
        ("relu", Activation::Relu),
        ("sigmoid", Activation::Sigmoid),
        ("tanh", Activation::Tanh),
        ("gelu", Activation::Gelu),
    ];

    /// The activation of a hidden layer by its name.
    pub fn of_name(name: &str) -> Option<Activation> {
        Activation::NAMES.iter().find(|(known, _)| *known == name).map(|(_, activation)| *activation)
    }

    /// Its name; of functions that only output layers have, too.
    pub fn name(self) -> &'static str {
        let known = Activation::NAMES.iter().find(|(_, activation)| *activation == self);
        known.map_or(if self == Activation::Identity { "identity" } else { "exp" }, |(name, _)| name)
    }
}

/// Convex hull of a training set in scaled labels: outside where normal · z + offset > 0.
#[derive(Clone, Debug, PartialEq)]
pub struct HullRow {
    /// The labels it acts on, one for each component of a facet's normal.
    pub labels: Vec<LabelInput>,
    /// Facets, each `labels.len()` components of the normal and the offset.
    pub facets: Vec<f64>,
}

/// Resets the members' sums, then adds Gaussian priors (of the batch) and training hulls as least-squares rows. Always first.
#[derive(Clone, Debug, PartialEq)]
pub struct Prior {
    pub hulls: Vec<HullRow>,
    /// (hulls) Where there are hulls: √(10 n), n the pixels of the spectrum's arm, masked ones too.
    pub weights: Option<BufferId>,
}

impl Prior {
    /// Without hulls.
    pub const NONE: Prior = Prior { hulls: Vec::new(), weights: None };
}

/// Scaled labels and their derivatives by the parameters: output `1 + tangents` rows of `stride` ≥ `inputs.len()`, zero padded.
/// A tangent row belongs to a parameter ([`tangents`] of the inputs), so that a tied label costs no row of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Labels {
    pub inputs: Vec<LabelInput>,
    pub output: BufferId,
    pub stride: usize,
    /// Without: the row of values alone.
    pub derivatives: bool,
}

/// output\[row\]\[n\] = Σ_k input\[row\]\[k\] weight\[k\]\[n\], for all rows of a round's members; k in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    pub input: BufferId,
    pub weight: BufferId,
    pub output: BufferId,
    pub rows: usize,
    /// Multiple of 4; of 16 where input and weight are [`Kind::Half`].
    pub inner: usize,
    /// Multiple of 16: the stride of `output` and `weight`.
    pub columns: usize,
}

/// output ← input, rounded to the nearest f16, ties to even: what a product of [`Kind::Half`] reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Narrow {
    pub input: BufferId,
    pub output: BufferId,
    /// Numbers of a member, even.
    pub length: usize,
}

/// In place, for each column: row 0 ← affine(σ(row 0 + bias)), tangents ← scale · σ′ · tangent.
#[derive(Clone, Debug, PartialEq)]
pub struct Activate {
    pub buffer: BufferId,
    pub bias: BufferId,
    /// Scale and offset of a folded batch norm.
    pub affine: Option<(BufferId, BufferId)>,
    pub activation: Activation,
    pub rows: usize,
    pub columns: usize,
}

/// One tiny network a pixel (El-Badry et al. 2018): value b1 + Σ_h w1 σ(b0 + Σ_l w0 z_l), and its tangents.
/// Weights are stored with the pixel as the fastest axis: `w0` (hidden, labels, columns), `b0`, `w1` (hidden, columns), `b1` (columns).
#[derive(Clone, Debug, PartialEq)]
pub struct PerPixel {
    pub input: BufferId,
    pub input_stride: usize,
    pub labels: usize,
    pub hidden: usize,
    pub w0: BufferId,
    pub b0: BufferId,
    pub w1: BufferId,
    pub b1: BufferId,
    pub activation: Activation,
    pub output: BufferId,
    pub rows: usize,
    pub columns: usize,
}

/// The continuum's arrays. The orthonormal basis at pixel j is `transform` (lower triangular, terms × terms) times `basis`
/// (terms × pixels).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Basis {
    pub terms: usize,
    pub basis: BufferId,
    pub transform: BufferId,
}

/// Variable projection: C = SᵀS, S_jc = weight_j value_j p_c(λ_j); solves C a = SᵀD. Writes to `solution` the `terms`
/// coefficients a, then C's Cholesky factor L (terms × terms, row-major, lower), and adds ln det C to the member.
#[derive(Clone, Debug, PartialEq)]
pub struct Continuum {
    pub model: BufferId,
    pub pixels: usize,
    pub data: BufferId,
    pub weight: BufferId,
    pub basis: Basis,
    pub solution: BufferId,
}

/// Adds an arm to the member's sums: r = D − weight · value · continuum, J = weight · continuum · tangents,
/// χ² += rᵀr, g += Jᵀr, A += JᵀJ − Bᵀ C⁻¹ B with B = SᵀJ. Without a continuum it is 1 and B empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Normal {
    pub model: BufferId,
    pub pixels: usize,
    /// The parameter of each tangent row.
    pub columns: Vec<usize>,
    pub data: BufferId,
    pub weight: BufferId,
    pub continuum: Option<(Basis, BufferId)>,
}

/// Adds a curve's points to the member's sums as an estimator has it, with the fields of [`Normal`] and no continuum.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    pub estimator: Estimator,
    pub model: BufferId,
    pub pixels: usize,
    /// The parameter of each tangent row.
    pub columns: Vec<usize>,
    pub data: BufferId,
    pub weight: BufferId,
}

/// One kernel over a round's members.
#[derive(Clone, Debug)]
pub enum Stage {
    Prior(Prior),
    Labels(Labels),
    Product(Product),
    Narrow(Narrow),
    Activate(Activate),
    PerPixel(PerPixel),
    Broaden(Broaden),
    Prefilter(Prefilter),
    Resample(Resample),
    Resolve(Resolve),
    Continuum(Continuum),
    Normal(Normal),
    Estimate(Estimate),
    Custom(Custom),
}

impl Stage {
    /// The [`Scope::Member`] buffers that the stage reads or writes.
    pub fn buffers(&self) -> Vec<BufferId> {
        match self {
            Stage::Prior(_) => Vec::new(),
            Stage::Labels(s) => vec![s.output],
            Stage::Product(s) => vec![s.input, s.output],
            Stage::Narrow(s) => vec![s.input, s.output],
            Stage::Activate(s) => vec![s.buffer],
            Stage::PerPixel(s) => vec![s.input, s.output],
            Stage::Broaden(s) => vec![s.input, s.output],
            Stage::Prefilter(s) => vec![s.input, s.output],
            Stage::Resample(s) => vec![s.input, s.output],
            Stage::Resolve(s) => vec![s.input, s.output],
            Stage::Continuum(s) => vec![s.model, s.solution],
            Stage::Normal(s) => std::iter::once(s.model).chain(s.continuum.map(|(_, solution)| solution)).collect(),
            Stage::Estimate(s) => vec![s.model],
            Stage::Custom(s) => vec![s.output],
        }
    }
}

/// One linearisation of a population.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub parameters: Vec<Parameter>,
    pub precision: Precision,
    /// Rows have no tangents: χ², penalty and ln det C are all that comes of it (`evaluate`).
    pub values_only: bool,
    /// The objective has ln det C in it, besides χ² and penalty.
    pub marginalise: bool,
    /// Where the rows' noise is not known: points − parameters. A simplex's `fatol` is then in units of χ² over this.
    pub dof: Option<f64>,
    pub buffers: Vec<Buffer>,
    pub stages: Vec<Stage>,
    /// What its populations share.
    pub kin: Kin,
}

impl Recording {
    /// Whether a last step may be taken without a look at where it ends: not where Poisson's likelihood may have no value there.
    pub fn trusts_steps(&self) -> bool {
        let counts = |stage: &Stage| matches!(stage, Stage::Estimate(stage) if stage.estimator == Estimator::Poisson);
        !self.stages.iter().any(counts)
    }

    /// Adds a buffer.
    pub fn buffer(&mut self, name: impl Into<String>, scope: Scope, kind: Kind, length: usize) -> BufferId {
        self.buffers.push(Buffer { name: name.into(), scope, kind, length, values: None });
        BufferId(self.buffers.len() - 1)
    }

    /// Adds a constant.
    pub fn constant(&mut self, name: impl Into<String>, values: Values) -> BufferId {
        let kind = if matches!(values, Values::I32(_)) { Kind::Index } else { Kind::Float };
        self.constant_of(kind, name, values)
    }

    /// Adds a constant of floating-point numbers, of 16 bits.
    pub fn half_constant(&mut self, name: impl Into<String>, values: Values) -> BufferId {
        self.constant_of(Kind::Half, name, values)
    }

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

    pub fn block(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0]
    }
}
