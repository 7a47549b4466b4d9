//! A user's model for all members of a tile by one call, where it is quicker so.

use super::tile::{Inputs, Tile};
use crate::kernels::{ModelScratch, put_rows, widen};
use crate::math::Real;
use crate::recording::{Custom, CustomInput, ManyFunction, Scope, Stage};
use crate::solver::member::Member;

/// Returns the model's function for many members, if the stage is one that is made of all of a tile together.
pub fn of_many(stage: &Stage) -> Option<(&Custom, &ManyFunction)> {
    match stage {
        Stage::Custom(custom) => custom.many.as_ref().map(|many| (custom, many)),
        _ => None,
    }
}

/// Evaluates the model at the trial points of a tile's members, and writes their rows.
pub fn run<R: Real>(
    inputs: &Inputs<R>,
    (custom, many): (&Custom, &ManyFunction),
    tile: &mut Tile<R>,
    members: &[&mut Member],
) {
    let own_grid = inputs.recording.block(custom.predictor).scope == Scope::Spectrum;
    let (mut shared_x, first) = (
        Vec::new(),
        members.first().map_or(0, |member| member.spectrum),
    );
    if !own_grid {
        widen(&mut shared_x, inputs.float(custom.predictor, first));
    }
    let read = |member: &&mut Member| {
        let mut scratch = ModelScratch::default();
        let predictor = own_grid.then(|| inputs.float(custom.predictor, member.spectrum));
        scratch.read(
            &member.trial,
            predictor,
            custom.scale.map(|id| inputs.float(id, member.spectrum)),
        );
        scratch
    };
    let read: Vec<ModelScratch> = members.iter().map(read).collect();
    let all: Vec<CustomInput> = read
        .iter()
        .map(|own| own.input((!own_grid).then_some(&shared_x)))
        .collect();
    let size = custom.rows * custom.pixels;
    let mut rows = vec![f64::NAN; all.len() * size];
    (many.fill)(&all, &mut rows);
    let mut output = tile.take(custom.output);
    for (place, (input, rows)) in all.iter().zip(rows.chunks_exact(size)).enumerate() {
        let block = tile.block(&inputs.recording, custom.output, place);
        put_rows(input, rows, custom.pixels, &mut output[block]);
    }
    tile.give_back(custom.output, output);
}
