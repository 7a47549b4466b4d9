//! A layer's matrix product: output\[row\]\[n\] = Σ_k input\[row\]\[k\] weight\[k\]\[n\], for all rows of a round's
//! members, k in ascending order. The Rust twin is `math/product.rs`. Shaders: registers alone for software adapters
//! (`shaders/product.wgsl`), and for cards tiles in workgroup memory, the hidden layers of a network in one kernel, and
//! for halves whole small matrices at once where a card multiplies these (`shaders/variants/`).

#[cfg(feature = "gpu")]
use super::activate::Activate;
#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
use super::{Kernel, Memory};
use crate::buffers::{BufferId, Cost, Declared, Kind, Work};
#[cfg(feature = "gpu")]
use crate::error::{Error, Result};
use crate::math::Real;
pub use crate::math::product::{MatrixProduct, Packed};

/// output\[row\]\[n\] = Σ_k input\[row\]\[k\] weight\[k\]\[n\], for all rows of a round's members; k in ascending
/// order.
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
    /// Factor of the product; 1 for f32 numbers.
    pub factor: f32,
    /// Number of rows of a member's output, to whose first row the product of one row is added; `None` if the product
    /// replaces the output.
    pub added_to: Option<usize>,
}

impl Kernel for Product {
    const WORK: Work = Work::Template;

    fn member_buffers(&self) -> Vec<BufferId> {
        vec![self.input, self.output]
    }

    /// Returns 2 R I C operations for R rows, I inner numbers and C columns.
    fn cost(&self, declared: Declared<'_>) -> Cost {
        // Two halves count as one number.
        let elements_per_number = if self.is_of_halves(declared) { 2 } else { 1 };
        let numbers = self.rows * (self.inner / elements_per_number + self.columns);
        Cost::new(2 * self.rows * self.inner * self.columns, numbers)
            .with_shared(self.inner * self.columns / elements_per_number)
    }

    fn cacheable_output(&self, _: Declared<'_>) -> Option<BufferId> {
        Some(self.output)
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        memory.write(self.output, |memory, output| {
            let Some(packed) = memory.packed(self.weight) else {
                return;
            };
            let input = memory.floats(self.input);
            let factor = R::of(f64::from(self.factor));
            let Some(output_rows) = self.added_to else {
                MatrixProduct {
                    input,
                    packed,
                    output,
                    accumulate: false,
                }
                .run();
                if self.factor != 1.0 {
                    output.iter_mut().for_each(|y| *y *= factor);
                }
                return;
            };
            let member_rows = output.chunks_exact_mut(output_rows * self.columns);
            let products = packed.product(input);
            for (rows, product) in member_rows.zip(products.chunks_exact(self.columns)) {
                for (y, x) in rows.iter_mut().zip(product) {
                    *y += factor * *x;
                }
            }
        });
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        self.product_shader(context, false)
    }
}

impl Product {
    /// Returns whether the product's input and weights are f16 numbers.
    pub(crate) fn is_of_halves(&self, declared: Declared<'_>) -> bool {
        declared.block(self.weight).kind == Kind::Half
    }
}

/// Algorithm of a matrix product. All but the last sum in ascending k.
#[cfg(feature = "gpu")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// An invocation makes 4 × 16 elements in registers.
    Registers,
    /// A workgroup of `x` × `y` invocations makes 8 `y` rows × 8 `x` columns.
    Tiles { x: u32, y: u32 },
    /// Product of halves: a subgroup of `lanes` lanes makes 4 × 4 matrices of `size` × `size`.
    Cooperative { size: u32, lanes: u32 },
}

/// The tiles of cards.
#[cfg(feature = "gpu")]
pub(crate) const TILES: [Variant; 3] = [
    Variant::Tiles { x: 8, y: 8 },
    Variant::Tiles { x: 16, y: 8 },
    Variant::Tiles { x: 16, y: 16 },
];

/// Algorithms of a device for products of numbers and of halves.
#[cfg(feature = "gpu")]
#[derive(Clone, Copy, Debug)]
pub struct Products {
    pub full: Variant,
    pub halves: Variant,
}

#[cfg(feature = "gpu")]
impl Products {
    /// Returns which kernel computes a product: that of f16 numbers or that of f32 ones.
    pub(crate) fn variant_for(self, declared: Declared<'_>, product: &Product) -> Variant {
        if product.is_of_halves(declared) {
            self.halves
        } else {
            self.full
        }
    }

    /// Returns whether these are the kernels of software, which compiles slowly and has no registers to fill.
    pub(crate) fn is_for_software(self) -> bool {
        self.full == Variant::Registers
    }

    /// Returns whether a product's kernel may activate its results. It sees all rows of whole members, which nearly
    /// fill its tile.
    pub(crate) fn may_activate(self, declared: Declared<'_>, product: &Product) -> bool {
        let Variant::Tiles { y, .. } = self.variant_for(declared, product) else {
            return false;
        };
        if product.added_to.is_some() {
            return false;
        }
        let tile = 8 * y as usize;
        10 * (tile / product.rows * product.rows) >= 9 * tile
    }

    /// Returns whether one kernel may compute these layers. A workgroup's rows fit its memory, and are so many that
    /// fetching the weights takes no longer than the products.
    pub(crate) fn may_chain(
        self,
        declared: Declared<'_>,
        layers: &[(&Product, &Activate)],
        workgroup_bytes: u32,
        storage_buffers: u32,
    ) -> bool {
        let rows = layers[0].0.rows;
        let chain_rows = MAX_CHAIN_ROWS / rows * rows;
        let is_plain = |product: &Product| {
            let is_padded = product.inner.is_multiple_of(4) && product.columns.is_multiple_of(4);
            product.rows == rows
                && product.added_to.is_none()
                && is_padded
                && !product.is_of_halves(declared)
        };
        let buffers = |activate: &Activate| if activate.affine.is_some() { 4 } else { 2 };
        !self.is_for_software()
            && layers.iter().all(|(product, _)| is_plain(product))
            && chain_rows >= MIN_CHAIN_ROWS
            && 4 * chain_rows * widest_row(layers) <= workgroup_bytes as usize
            && 3 + layers
                .iter()
                .map(|(_, activate)| buffers(activate))
                .sum::<u32>()
                <= storage_buffers
    }
}

/// Maximum number of rows of a workgroup that computes hidden layers: an invocation has four columns of each in
/// registers.
#[cfg(feature = "gpu")]
const MAX_CHAIN_ROWS: usize = 16;
/// Minimum number of rows of such a workgroup, between which it shares the weights that it fetches.
#[cfg(feature = "gpu")]
const MIN_CHAIN_ROWS: usize = 12;

/// Returns the largest number of columns of the layers and of their input.
#[cfg(feature = "gpu")]
fn widest_row(layers: &[(&Product, &Activate)]) -> usize {
    let widths = layers
        .iter()
        .map(|(product, _)| product.columns.max(product.inner));
    widths.max().unwrap_or(0)
}

/// Returns the shader that computes layers of a network, which [`Products::may_chain`] allows.
#[cfg(feature = "gpu")]
pub(crate) fn chain_shader(
    layers: &[(&Product, &Activate)],
    context: &ShaderContext<'_>,
) -> Shader {
    let (first, last) = (layers[0].0, layers[layers.len() - 1].0);
    let members = MAX_CHAIN_ROWS / first.rows;
    let dispatch = Dispatch {
        denominator: members as u32,
        ..Dispatch::WORKGROUPS
    };
    let text = include_str!("../../shaders/variants/product_chain.wgsl");
    let mut shader = context.start_shader("product_chain", text, dispatch);
    shader.bind_block(context, "x", "vec4<f32>", first.input, false);
    shader.bind_block(context, "y", "vec4<f32>", last.output, true);
    for (l, (product, activate)) in layers.iter().enumerate() {
        let weight = format!("weight_{l}");
        shader.bind_block(context, &weight, "vec4<f32>", product.weight, false);
        activate.declare_layer(&mut shader, context, &format!("_{l}"));
        let constants = &mut shader.constants;
        constants.unsigned(&format!("INNER4_{l}"), product.inner / 4);
        constants.unsigned(&format!("COLUMNS4_{l}"), product.columns / 4);
    }
    let constants = &mut shader.constants;
    constants.unsigned("LAYERS", layers.len());
    constants.unsigned("CHAIN_MEMBERS", members);
    constants.unsigned("ROWS", first.rows);
    constants.unsigned("WIDTH4", widest_row(layers) / 4);
    constants.unsigned("LAST4", last.columns / 4);
    shader
}

#[cfg(feature = "gpu")]
impl Product {
    /// Returns the shader of the matrix product, with a place for its layer's activation if `activates`.
    pub(crate) fn product_shader(
        &self,
        context: &ShaderContext<'_>,
        activates: bool,
    ) -> Result<Shader> {
        let halves = self.is_of_halves(context.declared);
        let step = if halves { 16 } else { 4 };
        if !self.inner.is_multiple_of(step) || !self.columns.is_multiple_of(16) {
            return Err(Error::model(format!(
                "a product of {} x {} is not padded",
                self.inner, self.columns
            )));
        }
        let variant = context.products.variant_for(context.declared, self);
        let mut shader = self.start_variant(context, variant, activates);
        let (input_element, output_element) = match (variant, halves) {
            (Variant::Cooperative { .. }, _) => ("f16", "f32"),
            (_, true) => ("vec2<u32>", "vec4<f32>"),
            (_, false) => ("vec4<f32>", "vec4<f32>"),
        };
        shader.bind_block(context, "x", input_element, self.input, false);
        shader.bind_block(context, "w", input_element, self.weight, false);
        shader.bind_block(context, "y", output_element, self.output, true);
        for name in ["x", "w"].into_iter().filter(|_| output_element != "f32") {
            let value = if halves {
                format!("vec4<f32>(unpack2x16float({name}[at].x), unpack2x16float({name}[at].y))")
            } else {
                format!("{name}[at]")
            };
            shader.constants.line(&format!(
                "fn {name}_at(at: u32) -> vec4<f32> {{ return {value}; }}"
            ));
        }
        shader.constants.unsigned("ROWS", self.rows);
        shader.constants.unsigned("INNER", self.inner);
        shader.constants.unsigned("COLUMNS", self.columns);
        if output_element != "f32" {
            let before = self.added_to.map_or("", |_| "y[at] + ");
            let factor = match self.factor {
                1.0 => String::new(),
                factor => format!("{factor:?}f * "),
            };
            shader.constants.line(&format!(
                "fn y_sum(at: u32, product: vec4<f32>) -> vec4<f32> {{ return {before}{factor}product; }}"
            ));
        }
        Ok(shader)
    }

    /// Returns the dispatch of workgroups that make a tile of `height` rows and `width` columns each.
    fn dispatch_tiles(&self, height: u32, width: u32) -> Dispatch {
        let y = (self.columns as u32).div_ceil(width);
        Dispatch {
            numerator: self.rows as u32,
            denominator: height,
            y,
            ..Dispatch::WORKGROUPS
        }
    }

    /// Starts the shader of a way to compute the product (`variant`), with the constants and the dispatch that it has.
    fn start_variant(
        &self,
        context: &ShaderContext<'_>,
        variant: Variant,
        activates: bool,
    ) -> Shader {
        let rows = self.rows as u32;
        match variant {
            Variant::Registers => {
                // 8 x 8 invocations of 4 rows x 16 columns
                context.start_shader(
                    "product",
                    include_str!("../../shaders/product.wgsl"),
                    self.dispatch_tiles(32, 128),
                )
            }
            Variant::Tiles { x, y } => {
                let text = include_str!("../../shaders/variants/product.wgsl");
                let tiles = self.dispatch_tiles(8 * y, 8 * x);
                // A tile has whole members if it activates them, because that needs all rows of a member.
                let members = if activates { 8 * y / rows } else { 0 };
                let dispatch = if activates {
                    Dispatch {
                        numerator: 1,
                        denominator: members,
                        ..tiles
                    }
                } else {
                    tiles
                };
                let mut shader = context.start_shader("product_tiled", text, dispatch);
                shader.constants.unsigned("TX", x as usize);
                shader.constants.unsigned("TY", y as usize);
                shader.constants.unsigned("X_LOADS", 16 / x as usize);
                shader.constants.unsigned("W_LOADS", 16 / y as usize);
                shader
                    .constants
                    .unsigned("ACTIVATED", usize::from(activates));
                shader.constants.unsigned("TILE_MEMBERS", members as usize);
                shader.constants.unsigned(
                    "TILE_USED",
                    (if activates { members * rows } else { 8 * y }) as usize,
                );
                shader
            }
            Variant::Cooperative { size, lanes } => {
                let text = include_str!("../../shaders/variants/product_cooperative.wgsl");
                let dispatch = self.dispatch_tiles(4 * size, 4 * size);
                let mut shader = context.start_shader("product_cooperative", text, dispatch);
                let is_added = usize::from(self.added_to.is_some());
                shader.constants.unsigned("ADDED", is_added);
                shader.constants.float("FACTOR", f64::from(self.factor));
                let row_distance = self.added_to.unwrap_or(1) * self.columns;
                shader.constants.unsigned("Y_STRIDE", row_distance);
                shader.constants.unsigned("SIZE", size as usize);
                shader.constants.unsigned("SUBGROUP", lanes as usize);
                for (name, element) in [("A", "f16"), ("B", "f16"), ("C", "f32")] {
                    shader.constants.line(&format!(
                        "alias Matrix{name} = coop_mat{size}x{size}<{element}, {name}>;"
                    ));
                }
                shader
            }
        }
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::buffers::Scope;
    use crate::recording::Recording;

    #[test]
    fn only_tiles_that_members_nearly_fill_activate() {
        let products = Products {
            full: Variant::Tiles { x: 8, y: 8 },
            halves: Variant::Registers,
        };
        let mut recording = Recording::default();
        let [x, w, y] =
            ["x", "w", "y"].map(|name| recording.buffer(name, Scope::Member, Kind::Float, 1));
        let cases = [
            (1, true),
            (5, true),
            (22, false),
            (26, false),
            (31, true),
            (33, false),
            (64, true),
            (65, false),
        ];
        for (rows, expected) in cases {
            let product = Product {
                input: x,
                weight: w,
                output: y,
                rows,
                inner: 4,
                columns: 16,
                factor: 1.0,
                added_to: None,
            };
            assert_eq!(
                products.may_activate(recording.declared(), &product),
                expected,
                "{rows}"
            );
        }
    }
}
