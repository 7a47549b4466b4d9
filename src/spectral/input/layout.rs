//! The layout of arms in a batch, for which populations are made.

use std::borrow::Cow;

use crate::model::{ArmLayout, LineSpread, ModelArm, Prepared, SpectralModel};
use crate::recording::Velocity;
use crate::spectra::{ArmSpectra, Wavelength};
use crate::spectral::input::ready::Grids;

/// Returns how each arm's arrays are laid out: pixels, diagonals of resolution, and whether the grid is shared or the
/// template's.
pub fn layout(model: &SpectralModel, arms: &[Cow<ArmSpectra>], grids: &[Grids]) -> Vec<ArmLayout> {
    let at_rest = model.velocity == Velocity::Fixed(0.0);
    let mut all = Vec::with_capacity(arms.len());
    for ((arm, data), grid) in model.arms.iter().zip(arms).zip(grids) {
        all.push(ArmLayout {
            pixels: data.pixels,
            shared_grid: matches!(data.wavelength, Wavelength::Shared(_)),
            diagonals: diagonals(arm, data),
            is_template: at_rest && matches!(grid, Grids::Shared(sampling) if sampling.is_template),
            own_basis: false,
        });
    }
    all
}

/// Marks in a layout each arm in which any of these prepared spectra has another continuum basis than its grid's.
pub fn layout_for<'p>(
    shape: Vec<ArmLayout>,
    all: impl Iterator<Item = &'p Prepared> + Clone,
) -> Vec<ArmLayout> {
    let one = |(a, arm): (usize, ArmLayout)| {
        let own_basis = all
            .clone()
            .any(|prepared| !prepared.arms[a].has_grid_basis());
        ArmLayout { own_basis, ..arm }
    };
    shape.into_iter().enumerate().map(one).collect()
}

/// Returns the number of diagonals of the spectra's resolution matrices; 0 if the model does not ask for them.
pub fn diagonals(arm: &ModelArm, data: &ArmSpectra) -> usize {
    let wanted = data
        .resolution
        .as_ref()
        .filter(|_| arm.line_spread == LineSpread::File);
    wanted.map_or(0, |resolution| resolution.diagonals)
}
