//! The layout of arms in a batch, for which populations are made.

use std::borrow::Cow;

use crate::model::{ArmLayout, LineSpread, ModelArm, Prepared, SpectralModel};
use crate::recording::Velocity;
use crate::spectra::{ArmSpectra, Wavelength};
use crate::spectral::input::ready::Grids;

/// Returns the layout of each arm's arrays: the number of pixels, the diagonals of resolution, and whether the grid is
/// shared or the template's.
pub fn lay_out_arms(
    model: &SpectralModel,
    arms: &[Cow<ArmSpectra>],
    grids: &[Grids],
) -> Vec<ArmLayout> {
    let at_rest = model.velocity() == Velocity::Fixed(0.0);
    let mut layouts = Vec::with_capacity(arms.len());
    for ((arm, data), grid) in model.arms.iter().zip(arms).zip(grids) {
        layouts.push(ArmLayout {
            pixels: data.pixels,
            shared_grid: matches!(data.wavelength, Wavelength::Shared(_)),
            diagonals: count_diagonals(arm, data),
            is_template: at_rest && matches!(grid, Grids::Shared(sampling) if sampling.is_template),
            own_basis: false,
        });
    }
    layouts
}

/// Marks in a layout each arm in which any of these prepared spectra has another continuum basis than its grid's.
pub fn mark_own_bases<'p>(
    mut layout: Vec<ArmLayout>,
    spectra: impl Iterator<Item = &'p Prepared> + Clone,
) -> Vec<ArmLayout> {
    for (a, arm) in layout.iter_mut().enumerate() {
        arm.own_basis = spectra
            .clone()
            .any(|prepared| !prepared.arms[a].has_grid_basis());
    }
    layout
}

/// Returns the number of diagonals of the spectra's resolution matrices; 0 if the model does not ask for them.
pub fn count_diagonals(arm: &ModelArm, data: &ArmSpectra) -> usize {
    let resolution = data
        .resolution
        .as_ref()
        .filter(|_| arm.line_spread == LineSpread::File);
    resolution.map_or(0, |matrices| matrices.diagonals)
}
