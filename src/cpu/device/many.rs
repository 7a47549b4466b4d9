//! A user's model for all members of a tile by one call, where it is quicker so.

use super::tile::{Inputs, MemberTile};
use crate::kernels::{ModelScratch, put_rows, widen};
use crate::math::Real;
use crate::recording::{Custom, CustomInput, ManyFunction, Scope, Stage};
use crate::solver::member::Member;

/// Returns the model's function for many members, if the stage is evaluated for all members of a tile together.
pub fn many_function(stage: &Stage) -> Option<(&Custom, &ManyFunction)> {
    match stage {
        Stage::Custom(custom) => custom.many.as_ref().map(|many| (custom, many)),
        _ => None,
    }
}

/// Evaluates the model at the trial points of a tile's members, and writes their rows.
pub fn evaluate_tile<R: Real>(
    inputs: &Inputs<R>,
    (custom, many): (&Custom, &ManyFunction),
    tile: &mut MemberTile<R>,
    members: &[&mut Member],
) {
    // 1. Read the predictor and scale of each member. The predictor is widened once if all spectra share it.
    let own_grid = inputs.recording.block(custom.predictor).scope == Scope::Spectrum;
    let mut shared_x = Vec::new();
    let first_spectrum = members.first().map_or(0, |member| member.spectrum);
    if !own_grid {
        widen(
            &mut shared_x,
            inputs.floats(custom.predictor, first_spectrum),
        );
    }
    let mut member_inputs: Vec<ModelScratch> = Vec::with_capacity(members.len());
    for member in members {
        let mut scratch = ModelScratch::default();
        let predictor = own_grid.then(|| inputs.floats(custom.predictor, member.spectrum));
        scratch.read(
            &member.trial,
            predictor,
            custom.scale.map(|id| inputs.floats(id, member.spectrum)),
        );
        member_inputs.push(scratch);
    }
    let arguments: Vec<CustomInput> = member_inputs
        .iter()
        .map(|scratch| scratch.input((!own_grid).then_some(&shared_x)))
        .collect();
    // 2. Call the user's function once for all members.
    let row_size = custom.rows * custom.pixels;
    let mut rows = vec![f64::NAN; arguments.len() * row_size];
    (many.fill)(&arguments, &mut rows);
    // 3. Write each member's rows into the tile.
    let mut output = tile.take_rows(custom.output);
    for (place, (input, rows)) in arguments
        .iter()
        .zip(rows.chunks_exact(row_size))
        .enumerate()
    {
        let block = tile.block_range(&inputs.recording, custom.output, place);
        put_rows(input, rows, custom.pixels, &mut output[block]);
    }
    tile.give_rows_back(custom.output, output);
}
