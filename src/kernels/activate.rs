//! Elementwise part of a layer, in place, with its tangents: h = scale · σ(z + bias) + offset, ∂h = scale · σ′(z +
//! bias) ∂z (rows, columns). Twin of `shaders/activate.wgsl`.

#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
#[cfg(feature = "gpu")]
use super::source::Constants;
use pulp::NullaryFnOnce;

use super::{Kernel, Memory};
use crate::buffers::{BufferId, Cost, Declared, Work};
#[cfg(feature = "gpu")]
use crate::error::Result;
use crate::math::Real;

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
    /// Limit ± of the argument of [`Exp`](Activation::Exp), where a network does not say its own.
    pub const DEFAULT_CLIP: f64 = 300.0;

    /// Names of the activations of hidden layers, as emulator and model files spell them.
    pub(crate) const NAMES: &[(&str, Activation)] = &[
        ("silu", Activation::Silu),
        ("leaky_relu", Activation::LeakyRelu),
        ("relu", Activation::Relu),
        ("sigmoid", Activation::Sigmoid),
        ("tanh", Activation::Tanh),
        ("gelu", Activation::Gelu),
    ];

    /// Returns the activation function of a hidden layer that has this name; `None` if none has.
    pub(crate) fn of_name(name: &str) -> Option<Activation> {
        Activation::NAMES
            .iter()
            .find(|(named, _)| *named == name)
            .map(|(_, activation)| *activation)
    }

    /// Returns the activation function's name, `identity` and `exp` of output layers included.
    pub(crate) fn name(self) -> &'static str {
        let hidden_layer = Activation::NAMES
            .iter()
            .find(|(_, activation)| *activation == self);
        match hidden_layer {
            Some((name, _)) => name,
            None if self == Activation::Identity => "identity",
            None => "exp",
        }
    }
}

/// Activation of hidden rows in place. For each column: row 0 ← affine(σ(row 0 + bias)), tangents ← scale · σ′ ·
/// tangent.
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

impl Kernel for Activate {
    const WORK: Work = Work::Template;

    fn member_buffers(&self) -> Vec<BufferId> {
        vec![self.buffer]
    }

    /// Returns (R + 1) C operations for R rows of C columns.
    fn cost(&self, _: Declared<'_>) -> Cost {
        let constants = if self.affine.is_some() { 3 } else { 1 };
        Cost::new((self.rows + 1) * self.columns, 2 * self.rows * self.columns)
            .with_shared(constants * self.columns)
    }

    fn cacheable_output(&self, _: Declared<'_>) -> Option<BufferId> {
        Some(self.buffer)
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        memory.write(self.buffer, |memory, block| {
            let affine = self
                .affine
                .map(|(scale, offset)| (memory.floats(scale), memory.floats(offset)));
            let bias = memory.floats(self.bias);
            ActivationRows {
                block,
                columns: self.columns,
                bias,
                affine,
                activation: self.activation,
            }
            .run_vectorised();
        });
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        let mut shader = context.start_shader(
            "activate",
            include_str!("../../shaders/activate.wgsl"),
            Dispatch::pixels(self.columns),
        );
        shader.bind_block(context, "rows", "f32", self.buffer, true);
        self.declare_layer(&mut shader, context, "");
        shader.constants.unsigned("ROWS", self.rows);
        shader.constants.unsigned("COLUMNS", self.columns);
        Ok(shader)
    }
}

impl Activate {
    /// Adds to a shader the function `layer`, which returns the value and the slope of a column of the layer from that
    /// of its product, and the arrays that this reads. Their names end in `suffix`.
    #[cfg(feature = "gpu")]
    pub(crate) fn declare_layer(
        &self,
        shader: &mut Shader,
        context: &ShaderContext<'_>,
        suffix: &str,
    ) {
        shader.uses.extend(["math", "activation"]);
        shader.bind_block(context, &format!("bias{suffix}"), "f32", self.bias, false);
        let mut affine = ["1.0", "0.0"].map(str::to_owned);
        if let Some((scale, offset)) = self.affine {
            for (text, (name, id)) in affine
                .iter_mut()
                .zip([("scale", scale), ("offset", offset)])
            {
                shader.bind_block(context, &format!("{name}{suffix}"), "f32", id, false);
                *text = format!("{name}{suffix}[column]");
            }
        }
        let [scale, offset] = affine;
        declare_activation(&mut shader.constants, self.activation, suffix);
        shader.constants.line(&format!(
            "fn layer{suffix}(x: f32, column: u32) -> vec2<f32> {{\n\
             let outcome = activation{suffix}(x + bias{suffix}[column]);\n\
             return vec2<f32>(outcome.x * {scale} + {offset}, outcome.y * {scale});\n}}"
        ));
    }
}

#[cfg(feature = "gpu")]
/// Adds the WGSL function `activation`, which returns a layer's activation and its derivative at x. Its name ends in
/// `suffix`.
pub(super) fn declare_activation(constants: &mut Constants, activation: Activation, suffix: &str) {
    let call = match activation {
        Activation::Silu => "silu(x)".to_owned(),
        Activation::LeakyRelu => "leaky_relu(x)".to_owned(),
        Activation::Relu => "relu(x)".to_owned(),
        Activation::Sigmoid => "logistic(x)".to_owned(),
        Activation::Tanh => "hyperbolic_tangent(x)".to_owned(),
        Activation::Gelu => "gelu(x)".to_owned(),
        Activation::Identity => "identity(x)".to_owned(),
        Activation::Exp { clip } => {
            format!("exp_clipped(x, {})", constants.literal(clip.min(80.0)))
        }
    };
    constants.line(&format!(
        "fn activation{suffix}(x: f32) -> vec2<f32> {{ return {call}; }}"
    ));
}

/// One member's block and the layer's constants.
pub(crate) struct ActivationRows<'a, R> {
    pub block: &'a mut [R],
    pub columns: usize,
    pub bias: &'a [R],
    pub affine: Option<(&'a [R], &'a [R])>,
    pub activation: Activation,
}

impl<R: Real> ActivationRows<'_, R> {
    /// Adds the bias to one member's values and applies the activation to them and their tangents, with the widest
    /// vectors.
    pub fn run_vectorised(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> NullaryFnOnce for ActivationRows<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let one = R::ONE;
        match self.activation {
            Activation::Identity => self.apply(|z| (z, one)),
            Activation::Relu => self.apply(|z| {
                if z > R::ZERO {
                    (z, one)
                } else {
                    (R::ZERO, R::ZERO)
                }
            }),
            Activation::LeakyRelu => {
                let slope = R::of(0.01);
                self.apply(|z| {
                    if z > R::ZERO {
                        (z, one)
                    } else {
                        (slope * z, slope)
                    }
                });
            }
            Activation::Sigmoid => self.apply(|z| {
                let s = z.sigmoid();
                (s, s * (one - s))
            }),
            Activation::Tanh => self.apply(|z| {
                let t = Real::tanh(z);
                (t, one - t * t)
            }),
            Activation::Silu => self.apply(|z| {
                let s = z.sigmoid();
                (z * s, s * (one + z * (one - s)))
            }),
            Activation::Gelu => {
                let half = R::of(0.5);
                let root = R::of(std::f64::consts::FRAC_1_SQRT_2);
                let density = R::of(0.398_942_280_401_432_7);
                self.apply(|z| {
                    let phi = half * (one + (z * root).erf());
                    (z * phi, phi + z * density * (-(half * z * z)).e_to())
                });
            }
            Activation::Exp { clip } => {
                let clip = R::of(clip.min(R::LARGEST_CLIP));
                self.apply(|z| {
                    let e = z.maximum(-clip).minimum(clip).e_to();
                    if z >= -clip && z <= clip {
                        (e, e)
                    } else if z > clip || z < -clip {
                        (e, R::ZERO)
                    } else {
                        (z, z) // NaN passes through
                    }
                });
            }
        }
    }
}

/// Number of columns that are computed together: a few vectors.
const COLUMNS_AT_A_TIME: usize = 64;

impl<R: Real> ActivationRows<'_, R> {
    /// Replaces values by `function` of value + bias, rescaled, and multiplies tangents by its derivative. `function`
    /// returns both.
    #[inline(always)]
    fn apply(self, function: impl Fn(R) -> (R, R)) {
        let (values, tangents) = self.block.split_at_mut(self.columns);
        let mut slope = [R::ZERO; COLUMNS_AT_A_TIME];
        for start in (0..self.columns).step_by(COLUMNS_AT_A_TIME) {
            let range = start..self.columns.min(start + COLUMNS_AT_A_TIME);
            for ((v, b), s) in values[range.clone()]
                .iter_mut()
                .zip(&self.bias[range.clone()])
                .zip(&mut slope)
            {
                (*v, *s) = function(*v + *b);
            }
            if let Some((scale, offset)) = self.affine {
                let constants = scale[range.clone()].iter().zip(&offset[range.clone()]);
                for ((v, s), (scale, offset)) in values[range.clone()]
                    .iter_mut()
                    .zip(&mut slope)
                    .zip(constants)
                {
                    *v = *scale * *v + *offset;
                    *s = *scale * *s;
                }
            }
            for row in tangents.chunks_exact_mut(self.columns) {
                for (t, s) in row[range.clone()].iter_mut().zip(&slope) {
                    *t *= *s;
                }
            }
        }
    }
}
