//! The kernels of a recording, one file each: its data, its Rust twin, what it reads and writes, what it costs, and its
//! shader.
//!
//! A new kernel is a file here that implements [`Kernel`], a shader of the same name in `shaders/`, its module and its
//! line in the list below, and a case in `tests/parity`. `CONTRIBUTING.md` has the steps.
//!
//! Rows: a member's block of `rows` × `stride` numbers, row 0 the value, rows 1… its tangents by the solver's
//! parameters. Velocity and vsini come before the labels. A tangent belongs to a parameter, not to a label, so a tied
//! label costs nothing: `Labels` applies the chain rule.
//!
//! `emulator` and `model` use some of the definitions here: activation, transform, interpolation, the speed of light.

pub mod activate;
pub mod broaden;
pub mod continuum;
pub mod custom;
pub mod estimate;
pub mod integrate;
mod label;
pub mod labels;
mod memory;
pub mod normal;
pub mod per_pixel;
#[cfg(feature = "gpu")]
mod pixel_sums;
pub mod prefilter;
pub mod prior;
pub mod product;
pub mod resample;
pub mod resolve;
mod robust;
mod segment;
#[cfg(feature = "gpu")]
pub(crate) mod shader;
#[cfg(feature = "gpu")]
mod shader_rows;
#[cfg(feature = "gpu")]
pub(crate) mod source;
pub mod split;

use crate::buffers::{BufferId, Cost, Declared, Work};
#[cfg(feature = "gpu")]
use crate::error::Result;
use crate::math::Real;

pub use label::{LabelInput, Source, Transform, tangents};
pub use memory::{Memory, Priors, Scratch};
pub use segment::{Interpolation, Segment, Velocity};
#[cfg(feature = "gpu")]
use shader::{Shader, ShaderContext};

/// Speed of light, km/s.
pub const LIGHT: f64 = 299_792.458;

/// A kernel over a round's members.
pub trait Kernel {
    /// The kind of work that profiles count its time as.
    const WORK: Work;

    /// Returns the [`Scope::Member`](crate::buffers::Scope::Member) buffers that it reads or writes.
    fn member_buffers(&self) -> Vec<BufferId>;

    /// Returns how many operations and numbers the stage costs for one member.
    fn cost(&self, declared: Declared<'_>) -> Cost;

    /// Returns the buffer that it writes if that depends on the labels and on vsini alone, not on the spectrum: the CPU
    /// keeps such rows for starts that recur.
    fn cacheable_output(&self, _: Declared<'_>) -> Option<BufferId> {
        None
    }

    /// Returns the parameters on which a cacheable output depends, those of other buffers apart.
    fn cacheable_parameters(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Runs the stage in Rust, on the CPU, for the members whose rows `memory` shows.
    fn run<R: Real>(&self, memory: &mut impl Memory<R>);

    /// Returns the stage's GPU shader, with its constants, bindings and dispatch.
    ///
    /// # Errors
    /// Returns [`Error::Model`](crate::Error::Model) if the kernel is too large for a GPU, or its rows are not padded.
    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader>;
}

/// Declares [`Stage`], with one variant for each kernel. The modules stand above, where rustfmt finds them.
macro_rules! kernels {
    ($($module:ident: $name:ident,)*) => {
        $(pub use $module::$name;)*

        /// One kernel of a recording, with its data.
        #[derive(Clone, Debug)]
        pub enum Stage {
            $($name($name),)*
        }

        impl Stage {
            /// The kernels' names: the stems of `src/kernels/*.rs` and `shaders/*.wgsl`.
            pub const NAMES: &[&str] = &[$(stringify!($module),)*];

            /// Returns the kind of work under which profiles count the stage's time.
            pub const fn work(&self) -> Work {
                match self {
                    $(Stage::$name(_) => $name::WORK,)*
                }
            }

            /// Returns the member buffers that the stage reads or writes.
            pub fn member_buffers(&self) -> Vec<BufferId> {
                match self {
                    $(Stage::$name(stage) => stage.member_buffers(),)*
                }
            }

            /// Returns how many operations and numbers the stage costs for one member.
            pub fn cost(&self, declared: Declared<'_>) -> Cost {
                match self {
                    $(Stage::$name(stage) => stage.cost(declared),)*
                }
            }

            /// Returns the buffer that the stage writes if its contents do not depend on the spectrum; else `None`.
            pub fn cacheable_output(&self, declared: Declared<'_>) -> Option<BufferId> {
                match self {
                    $(Stage::$name(stage) => stage.cacheable_output(declared),)*
                }
            }

            /// Returns the indices of the parameters on which the stage's cacheable output depends.
            pub fn cacheable_parameters(&self) -> Vec<usize> {
                match self {
                    $(Stage::$name(stage) => stage.cacheable_parameters(),)*
                }
            }

            /// Runs the stage in Rust, on the CPU, for the members whose rows `memory` shows.
            pub fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
                match self {
                    $(Stage::$name(stage) => stage.run(memory),)*
                }
            }

            /// Returns the stage's GPU shader, with its constants, bindings and dispatch.
            #[cfg(feature = "gpu")]
            pub(crate) fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
                match self {
                    $(Stage::$name(stage) => stage.shader(context),)*
                }
            }
        }
    };
}

kernels! {
    prior: Prior,
    labels: Labels,
    product: Product,
    split: Split,
    activate: Activate,
    per_pixel: PerPixel,
    broaden: Broaden,
    prefilter: Prefilter,
    resample: Resample,
    integrate: Integrate,
    resolve: Resolve,
    continuum: Continuum,
    normal: Normal,
    estimate: Estimate,
    custom: Custom,
}

pub use activate::Activation;
pub use broaden::Rotation;
pub use continuum::Basis;
pub use custom::{
    CustomFunction, CustomInput, During, FillMany, Limits, ManyFunction, Member, pointwise,
};
pub(crate) use custom::{ModelScratch, put_rows, widen};
pub use prior::HullRow;
pub(crate) use prior::add_penalties;
pub use split::{REMAINDER_SCALE, remainder_weights};
