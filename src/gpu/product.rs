//! The matrix product's kernels: registers alone for software adapters, tiles in workgroup memory for cards, and for halves whole small
//! matrices at once where a card multiplies these.

use super::kernel::{Dispatch, Kernel};
use super::layout::Layout;
use crate::error::{Error, Result};
use crate::solver::recording::{self as rec, Kind, Recording, Stage};

/// How a product is computed. All but the last sum in ascending k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// An invocation makes 4 × 16 elements in registers.
    Registers,
    /// A workgroup of `x` × `y` invocations makes 8 `y` rows × 8 `x` columns.
    Tiles { x: u32, y: u32 },
    /// Of halves: a subgroup of so many lanes makes 4 × 4 matrices of `size` × `size`.
    Cooperative { size: u32, lanes: u32 },
}

/// How a device computes products of numbers, and of halves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Products {
    pub full: Variant,
    pub halves: Variant,
}

impl Products {
    /// Whether the kernel of a product can activate what it makes: it sees all rows of whole members, which nearly fill its tile.
    pub fn activate(self, recording: &Recording, stage: &rec::Product) -> bool {
        let Variant::Tiles { y, .. } = self.of(recording, stage) else { return false };
        let tile = 8 * y as usize;
        10 * (tile / stage.rows * stage.rows) >= 9 * tile
    }

    /// Those of a recording.
    pub fn of(self, recording: &Recording, stage: &rec::Product) -> Variant {
        if is_of_halves(recording, stage) { self.halves } else { self.full }
    }
}

/// Whether input and weight are f16.
fn is_of_halves(recording: &Recording, stage: &rec::Product) -> bool {
    recording.block(stage.weight).kind == Kind::Half
}

/// Whether a recording has such products.
pub(super) fn has_halves(recording: &Recording) -> bool {
    recording.stages.iter().any(|stage| matches!(stage, Stage::Product(stage) if is_of_halves(recording, stage)))
}

/// What a card is asked to choose from.
pub(super) const TILES: [Variant; 3] =
    [Variant::Tiles { x: 8, y: 8 }, Variant::Tiles { x: 16, y: 8 }, Variant::Tiles { x: 16, y: 16 }];

/// The kernel of a product, or of one that leaves room for its layer's activation.
pub(super) fn kernel(
    recording: &Recording,
    layout: Layout,
    stage: &rec::Product,
    (variant, activates): (Variant, bool),
) -> Result<Kernel> {
    let halves = is_of_halves(recording, stage);
    let step = if halves { 16 } else { 4 };
    if !stage.inner.is_multiple_of(step) || !stage.columns.is_multiple_of(16) {
        return Err(Error::Model(format!("a product of {} x {} is not padded", stage.inner, stage.columns)));
    }
    let (rows, columns) = (stage.rows as u32, stage.columns as u32);
    let sized = |height: u32, width: u32| Dispatch {
        numerator: rows,
        denominator: height,
        y: columns.div_ceil(width),
        ..Dispatch::WORKGROUPS
    };
    let mut kernel = match variant {
        Variant::Registers => {
            // 8 x 8 invocations of 4 rows x 16 columns
            Kernel::new("product", include_str!("../../shaders/product.wgsl"), layout, sized(32, 128))
        }
        Variant::Tiles { x, y } => {
            let text = include_str!("../../shaders/variants/product.wgsl");
            // whole members where their rows must meet
            let members = if activates { 8 * y / rows } else { 0 };
            let whole = Dispatch { numerator: 1, denominator: members, ..sized(8 * y, 8 * x) };
            let dispatch = if activates { whole } else { sized(8 * y, 8 * x) };
            let mut kernel = Kernel::new("product_tiled", text, layout, dispatch);
            kernel.constants.unsigned("TX", x as usize);
            kernel.constants.unsigned("TY", y as usize);
            kernel.constants.unsigned("ACTIVATED", usize::from(activates));
            kernel.constants.unsigned("TILE_MEMBERS", members as usize);
            kernel.constants.unsigned("TILE_USED", (if activates { members * rows } else { 8 * y }) as usize);
            kernel
        }
        Variant::Cooperative { size, lanes } => {
            let text = include_str!("../../shaders/variants/product_cooperative.wgsl");
            let mut kernel = Kernel::new("product_cooperative", text, layout, sized(4 * size, 4 * size));
            kernel.constants.unsigned("SIZE", size as usize);
            kernel.constants.unsigned("SUBGROUP", lanes as usize);
            for (name, element) in [("A", "f16"), ("B", "f16"), ("C", "f32")] {
                kernel.constants.line(&format!("alias Matrix{name} = coop_mat{size}x{size}<{element}, {name}>;"));
            }
            kernel
        }
    };
    let (four, sum) = match (variant, halves) {
        (Variant::Cooperative { .. }, _) => ("f16", "f32"),
        (_, true) => ("vec2<u32>", "vec4<f32>"),
        (_, false) => ("vec4<f32>", "vec4<f32>"),
    };
    kernel.block(recording, "x", four, stage.input, false);
    kernel.block(recording, "w", four, stage.weight, false);
    kernel.block(recording, "y", sum, stage.output, true);
    for name in ["x", "w"].into_iter().filter(|_| sum != "f32") {
        let value = if halves {
            format!("vec4<f32>(unpack2x16float({name}[at].x), unpack2x16float({name}[at].y))")
        } else {
            format!("{name}[at]")
        };
        kernel.constants.line(&format!("fn {name}_at(at: u32) -> vec4<f32> {{ return {value}; }}"));
    }
    kernel.constants.unsigned("ROWS", stage.rows);
    kernel.constants.unsigned("INNER", stage.inner);
    kernel.constants.unsigned("COLUMNS", stage.columns);
    Ok(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_that_members_do_not_fill_do_not_activate() {
        let products = Products { full: Variant::Tiles { x: 8, y: 8 }, halves: Variant::Registers };
        let mut recording = Recording::default();
        let [x, w, y] = ["x", "w", "y"].map(|name| recording.buffer(name, rec::Scope::Member, Kind::Float, 1));
        let filled = [(1, true), (5, true), (22, false), (26, false), (31, true), (33, false), (64, true), (65, false)];
        for (rows, expected) in filled {
            let stage = rec::Product { input: x, weight: w, output: y, rows, inner: 4, columns: 16 };
            assert_eq!(products.activate(&recording, &stage), expected, "{rows}");
        }
    }
}
