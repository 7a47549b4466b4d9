//! Executes a recording's stages for a tile of members.

use std::ops::Range;

use super::tile::{Inputs, Tile, together};
use crate::cpu::{
    activate, broaden, continuum, custom, estimate, labels, narrow, normal, per_pixel, prefilter, prior, product,
    resample, resolve,
};
use crate::rows::Real;
use crate::solver::member::Member;
use crate::solver::recording::{Basis, BufferId, Product, Stage};

/// Runs the stages for a tile of members. Products take the whole tile; the stages between two products run member by member,
/// so that a member's rows are still in the cache when the next stage reads them.
pub fn linearise<R: Real>(inputs: &Inputs<R>, tile: &mut Tile<R>, members: &mut [&mut Member]) {
    let stages = &inputs.recording.stages;
    let mut first = 0;
    for run in stages.chunk_by(together) {
        if let [Stage::Product(stage)] = run {
            tile.timed(first, |tile| run_product(inputs, tile, stage, members.len()));
        } else {
            let mut blocks: Vec<Range<usize>> = Vec::with_capacity(inputs.recording.buffers.len());
            for (place, member) in members.iter_mut().enumerate() {
                let block = |b| tile.block(&inputs.recording, BufferId(b), place);
                blocks.clear();
                blocks.extend((0..inputs.recording.buffers.len()).map(block));
                for (k, stage) in run.iter().enumerate() {
                    tile.timed(first + k, |tile| run_stage((inputs, &blocks), tile, stage, member));
                }
            }
        }
        first += run.len();
    }
    if let Some(tally) = &mut tile.tally {
        tally.calls += 1;
        tally.members += members.len() as u64;
    }
}

/// A product for the first `count` members of the tile.
fn run_product<R: Real>(inputs: &Inputs<R>, tile: &mut Tile<R>, stage: &Product, count: usize) {
    let mut output = tile.take(stage.output);
    let input = &tile.rows(stage.input)[..count * stage.rows * stage.inner];
    let weight = inputs.packed(stage.weight);
    let used = &mut output[..count * stage.rows * stage.columns];
    product::Product { input, packed: weight, output: used, inner: stage.inner, columns: stage.columns }.run();
    tile.give_back(stage.output, output);
}

/// One stage for the member whose rows are `blocks` of the tile's.
fn run_stage<R: Real>(
    (inputs, blocks): (&Inputs<R>, &[Range<usize>]),
    tile: &mut Tile<R>,
    stage: &Stage,
    member: &mut Member,
) {
    let recording = &*inputs.recording;
    let spectrum = member.spectrum;
    let at = |id: BufferId| blocks[id.0].clone();
    match stage {
        Stage::Prior(stage) => {
            let weights = stage.weights.map_or(&[][..], |id| inputs.float(id, spectrum));
            let (priors, hull_weight) = (inputs.priors(spectrum), |h: usize| weights[h].to_f64());
            prior::prior((stage, &recording.parameters), &member.trial, priors, hull_weight, &mut member.trial_sums);
        }
        Stage::Labels(stage) => {
            labels::labels(
                stage,
                &recording.parameters,
                &member.trial,
                &mut tile.rows_mut(stage.output)[at(stage.output)],
            );
        }
        Stage::Product(_) => {}
        Stage::Narrow(stage) => {
            let mut output = tile.take(stage.output);
            narrow::narrow(&tile.rows(stage.input)[at(stage.input)], &mut output[at(stage.output)]);
            tile.give_back(stage.output, output);
        }
        Stage::Activate(stage) => activate::Activate {
            block: &mut tile.rows_mut(stage.buffer)[at(stage.buffer)],
            columns: stage.columns,
            bias: inputs.float(stage.bias, 0),
            affine: stage.affine.map(|(scale, offset)| (inputs.float(scale, 0), inputs.float(offset, 0))),
            activation: stage.activation,
        }
        .run(),
        Stage::PerPixel(stage) => {
            let mut output = tile.take(stage.output);
            per_pixel::PerPixel {
                stage,
                input: &tile.rows(stage.input)[at(stage.input)],
                w0: inputs.float(stage.w0, 0),
                b0: inputs.float(stage.b0, 0),
                w1: inputs.float(stage.w1, 0),
                b1: inputs.float(stage.b1, 0),
                output: &mut output[at(stage.output)],
            }
            .run();
            tile.give_back(stage.output, output);
        }
        Stage::Broaden(stage) => {
            let mut output = tile.take(stage.output);
            broaden::Broaden {
                stage,
                parameters: &recording.parameters,
                u: &member.trial,
                input: &tile.rows(stage.input)[at(stage.input)],
                output: &mut output[at(stage.output)],
            }
            .run();
            tile.give_back(stage.output, output);
        }
        Stage::Prefilter(stage) => {
            let mut output = tile.take(stage.output);
            let input = &tile.rows(stage.input)[at(stage.input)];
            let rows = input.chunks_exact(stage.columns).zip(output[at(stage.output)].chunks_exact_mut(stage.columns));
            for (input, output) in rows {
                prefilter::Prefilter { input, output, segments: &stage.segments }.run();
            }
            tile.give_back(stage.output, output);
        }
        Stage::Resample(stage) => {
            let mut output = tile.take(stage.output);
            resample::Resample {
                stage,
                parameters: &recording.parameters,
                u: &member.trial,
                input: &tile.rows(stage.input)[at(stage.input)],
                index: inputs.index(stage.index, spectrum),
                fraction: inputs.float(stage.fraction, spectrum),
                output: &mut output[at(stage.output)],
            }
            .run();
            tile.give_back(stage.output, output);
        }
        Stage::Resolve(stage) => {
            let mut output = tile.take(stage.output);
            resolve::Resolve {
                pixels: stage.pixels,
                diagonals: stage.diagonals,
                matrix: inputs.float(stage.matrix, spectrum),
                input: &tile.rows(stage.input)[at(stage.input)],
                output: &mut output[at(stage.output)],
            }
            .run();
            tile.give_back(stage.output, output);
        }
        Stage::Continuum(stage) => {
            let mut solution = tile.take(stage.solution);
            let Basis { terms, basis, transform } = stage.basis;
            member.trial_sums.ln_det += continuum::Continuum {
                terms,
                pixels: stage.pixels,
                value: &tile.rows(stage.model)[at(stage.model)][..stage.pixels],
                data: inputs.float(stage.data, spectrum),
                weight: inputs.float(stage.weight, spectrum),
                basis: inputs.float(basis, spectrum),
                transform: inputs.float(transform, spectrum),
                solution: &mut solution[at(stage.solution)],
            }
            .run();
            tile.give_back(stage.solution, solution);
        }
        Stage::Normal(stage) => {
            let continuum = stage.continuum.map(|(basis, solution)| normal::Projection {
                terms: basis.terms,
                basis: inputs.float(basis.basis, spectrum),
                transform: inputs.float(basis.transform, spectrum),
                solution: &tile.rows(solution)[at(solution)],
            });
            normal::Normal {
                pixels: stage.pixels,
                columns: &stage.columns,
                model: &tile.rows(stage.model)[at(stage.model)],
                data: inputs.float(stage.data, spectrum),
                weight: inputs.float(stage.weight, spectrum),
                continuum,
                sums: &mut member.trial_sums,
            }
            .run();
        }
        Stage::Estimate(stage) => estimate::Estimate {
            estimator: stage.estimator,
            pixels: stage.pixels,
            columns: &stage.columns,
            model: &tile.rows(stage.model)[at(stage.model)],
            data: inputs.float(stage.data, spectrum),
            weight: inputs.float(stage.weight, spectrum),
            sums: &mut member.trial_sums,
        }
        .run(),
        Stage::Custom(stage) => {
            let mut output = tile.take(stage.output);
            let scale = stage.scale.map(|id| inputs.float(id, spectrum));
            let own = (inputs.float(stage.predictor, spectrum), scale);
            custom::custom(stage, &member.trial, own, &mut output[at(stage.output)], &mut tile.scratch);
            tile.give_back(stage.output, output);
        }
    }
}
