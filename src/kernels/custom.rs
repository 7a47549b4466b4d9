//! A user's own model: value and derivatives by `u` into rows. Twin of `shaders/custom.wgsl`.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "gpu")]
use super::shader::{BindingTarget, Dispatch, Shader, ShaderContext};
#[cfg(feature = "gpu")]
use super::source::UserCode;
use super::{Kernel, Memory};
use crate::buffers::{BufferId, Cost, Declared, Work};
#[cfg(feature = "gpu")]
use crate::error::Result;
use crate::math::Real;

/// A model of the user's own: fills rows 0 (value) and 1… (derivatives by its parameters) of `output`, `pixels` wide.
#[derive(Clone)]
pub struct Custom {
    pub name: String,
    pub output: BufferId,
    pub rows: usize,
    pub pixels: usize,
    /// D.
    pub predictors: usize,
    /// (D, pixels)
    pub predictor: BufferId,
    /// (3, P): units, lower and upper bounds ([`Limits`]). The model sees unit · `u`, and row 1 + p, its derivative by
    /// that parameter p, is brought back to `u`. Without: `u` itself. On the CPU two numbers may follow, the fit's
    /// [`Member`].
    pub scale: Option<BufferId>,
    /// Constants that the WGSL may read as `table`, because they are too many to write into the source; empty if there
    /// are none.
    pub table: Arc<[f32]>,
    /// `fn fill(x: f32, u: ptr<function, array<f32, P>>, out: ptr<function, array<f32, ROWS>>)`, for one pixel;
    /// `x: array<f32, D>` for several predictors. It may call the functions of `math.wgsl`,
    /// `functions.wgsl`, `gamma.wgsl` and `faddeeva.wgsl` in `shaders/shared`.
    pub wgsl: String,
    /// The same in Rust, for all pixels.
    pub rust: CustomFunction,
    /// The same for many members at once, where that is quicker. The CPU then makes the stage of a tile's members
    /// together.
    pub many: Option<ManyFunction>,
}

/// Input of a custom model's evaluation: one member's parameters and predictors.
#[derive(Clone, Copy, Debug)]
pub struct CustomInput<'a> {
    /// (D, pixels)
    pub x: &'a [f64],
    /// (P)
    pub parameters: &'a [f64],
    /// Units and bounds of the parameters, if the stage has them.
    pub limits: Option<Limits<'a>>,
    pub member: Member,
}

/// The fit for which a custom model is evaluated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Member {
    /// Place among the fits of a run.
    pub index: usize,
    /// Number of its data in the user's input.
    pub number: usize,
}

impl Member {
    /// Reads a fit's index and number from behind the limits of `count` parameters in a block; 0 and 0 if they are not
    /// there.
    pub fn read(block: &[f64], count: usize) -> Member {
        match block.get(3 * count..) {
            Some(&[index, number]) => Member {
                index: index as usize,
                number: number as usize,
            },
            _ => Member::default(),
        }
    }
}

/// Units of the parameters and the bounds between which they stay: (P) each.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    pub scale: &'a [f64],
    pub lower: &'a [f64],
    pub upper: &'a [f64],
}

impl<'a> Limits<'a> {
    /// Reads the scales, lower and upper bounds of `count` parameters from the first three rows of a block.
    pub fn read(block: &'a [f64], count: usize) -> Limits<'a> {
        let (scale, bounds) = block.split_at(count);
        let (lower, rest) = bounds.split_at(count);
        Limits {
            scale,
            lower,
            upper: &rest[..count],
        }
    }
}

/// A custom model's Rust twin: fills (rows, pixels).
pub type CustomFunction = Arc<dyn Fn(&CustomInput, &mut [f64]) + Send + Sync>;

/// A custom model's Rust twin for many members: fills (members, rows, pixels).
pub type FillMany = Arc<dyn Fn(&[CustomInput<'_>], &mut [f64]) + Send + Sync>;

/// Function that calls a thread's work, and may do something before and after it.
pub type During = Arc<dyn Fn(&mut (dyn FnMut() + Send)) + Send + Sync>;

/// A custom model's Rust twin for many members, and a function around its calls.
#[derive(Clone)]
pub struct ManyFunction {
    pub fill: FillMany,
    /// Does work in which a thread calls `fill` many times.
    pub during: During,
}

impl fmt::Debug for ManyFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManyFunction").finish_non_exhaustive()
    }
}

/// Turns a function that fills the rows of one pixel, given x and the parameters, into a custom model's Rust function.
pub fn pointwise(
    model: impl Fn(f64, &[f64], &mut [f64]) + Send + Sync + 'static,
) -> CustomFunction {
    Arc::new(move |&CustomInput { x, parameters, .. }, output| {
        let pixels = x.len();
        let mut column = vec![0.0; output.len() / pixels.max(1)];
        for (j, x) in x.iter().enumerate() {
            model(*x, parameters, &mut column);
            for (r, value) in column.iter().enumerate() {
                output[r * pixels + j] = *value;
            }
        }
    })
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Custom")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Kernel for Custom {
    const WORK: Work = Work::Template;

    fn member_buffers(&self) -> Vec<BufferId> {
        vec![self.output]
    }

    /// Returns no operations: a user's model is its own.
    fn cost(&self, _: Declared<'_>) -> Cost {
        Cost::new(0, (self.rows + self.predictors) * self.pixels)
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        let mut scratch = memory.take_scratch();
        memory.write(self.output, |memory, output| {
            let scale = self.scale.map(|id| memory.floats(id));
            evaluate(
                self,
                memory.trial(),
                memory.floats(self.predictor),
                scale,
                output,
                &mut scratch.model,
            );
        });
        memory.give_scratch_back(scratch);
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        Ok(self.custom_shader(context))
    }
}

#[cfg(feature = "gpu")]
impl Custom {
    /// Returns the shader that evaluates the user's WGSL model at every pixel of every member.
    pub(crate) fn custom_shader(&self, context: &ShaderContext<'_>) -> Shader {
        let mut shader = context.start_shader(
            "custom",
            include_str!("../../shaders/custom.wgsl"),
            Dispatch::pixels(self.pixels),
        );
        shader.bind_state(false);
        shader.bind_block(context, "predictor", "f32", self.predictor, false);
        shader.bind_block(context, "output", "f32", self.output, true);
        let mut scale = "1.0";
        if let Some(id) = self.scale {
            shader.bind_block(context, "scale", "f32", id, false);
            scale = "scale[scale_base(position, spectrum) + p]";
        }
        if !self.table.is_empty() {
            shader.bind("table", "f32", BindingTarget::Table, false);
            shader.table.extend_from_slice(&self.table);
        }
        let constants = &mut shader.constants;
        constants.unsigned("ROWS", self.rows);
        constants.unsigned("PIXELS", self.pixels);
        constants.line(&format!(
            "fn scale_of(p: u32, position: u32, spectrum: u32) -> f32 {{ return {scale}; }}"
        ));
        let predictors: Vec<String> = (0..self.predictors)
            .map(|d| format!("predictor[at + {d}u * PIXELS]"))
            .collect();
        let (kind, value) = match self.predictors {
            1 => ("f32".to_owned(), predictors.concat()),
            count => (
                format!("array<f32, {count}>"),
                format!("array<f32, {count}>({})", predictors.join(", ")),
            ),
        };
        constants.line(&format!(
            "fn predictors_at(at: u32) -> {kind} {{ return {value}; }}"
        ));
        shader.user = Some(UserCode {
            name: format!("model {}", self.name),
            text: self.wgsl.clone(),
        });
        shader
    }
}

/// Working space of one evaluation of a user's model.
#[derive(Debug, Default)]
pub struct ModelScratch {
    x: Vec<f64>,
    limits: Vec<f64>,
    parameters: Vec<f64>,
    rows: Vec<f64>,
}

/// Evaluates the custom model in Rust for one member, and writes its rows, model and derivatives by u: (rows, pixels).
/// `scale` has the units of `u` and its bounds, as [`Limits`] reads them.
fn evaluate<R: Real>(
    stage: &Custom,
    u: &[f64],
    predictor: &[R],
    scale: Option<&[R]>,
    output: &mut [R],
    scratch: &mut ModelScratch,
) {
    scratch.read(u, Some(predictor), scale);
    let mut rows = std::mem::take(&mut scratch.rows);
    rows.clear();
    rows.resize(stage.rows * stage.pixels, f64::NAN);
    let input = scratch.input(None);
    (stage.rust)(&input, &mut rows);
    put_rows(&input, &rows, stage.pixels, output);
    scratch.rows = rows;
}

impl ModelScratch {
    /// Reads a member's parameters, its predictors if it has its own, and its limits.
    pub(crate) fn read<R: Real>(
        &mut self,
        u: &[f64],
        predictor: Option<&[R]>,
        scale: Option<&[R]>,
    ) {
        widen(&mut self.x, predictor.unwrap_or(&[]));
        widen(&mut self.limits, scale.unwrap_or(&[]));
        self.parameters.clear();
        for (p, u) in u.iter().enumerate() {
            let unit = self.limits.get(p).copied().unwrap_or(1.0);
            self.parameters.push(u * unit);
        }
    }

    /// Returns what has been read as the model's input, with the predictors of all members if there are such.
    pub(crate) fn input<'a>(&'a self, shared_x: Option<&'a [f64]>) -> CustomInput<'a> {
        let ModelScratch {
            x,
            limits,
            parameters,
            ..
        } = self;
        let member = Member::read(limits, parameters.len());
        let limits = (!limits.is_empty()).then(|| Limits::read(limits, parameters.len()));
        CustomInput {
            x: shared_x.unwrap_or(x),
            parameters,
            limits,
            member,
        }
    }
}

/// Writes a model's rows as those by u: (rows, pixels).
pub(crate) fn put_rows<R: Real>(
    input: &CustomInput<'_>,
    rows: &[f64],
    pixels: usize,
    output: &mut [R],
) {
    for (r, (out, row)) in output
        .chunks_exact_mut(pixels)
        .zip(rows.chunks_exact(pixels))
        .enumerate()
    {
        // Row 0 is the value; the others are derivatives, which the units bring to u.
        let unit = match input.limits {
            Some(limits) if r > 0 => limits.scale[r - 1],
            _ => 1.0,
        };
        out.iter_mut()
            .zip(row)
            .for_each(|(out, value)| *out = R::of(unit * *value));
    }
}

/// Replaces the contents of `to` by the values of `from`, as f64.
pub(crate) fn widen<R: Real>(to: &mut Vec<f64>, from: &[R]) {
    to.clear();
    to.extend(from.iter().map(|x| x.to_f64()));
}
