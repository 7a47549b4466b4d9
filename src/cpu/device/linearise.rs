//! Executes a recording's stages for a tile of members.

use std::ops::Range;

use super::known::{Head, Known};
use super::tile::{Inputs, Tile, together};
use crate::cpu::{
    activate, broaden, continuum, custom, estimate, labels, narrow, normal, per_pixel, prefilter, prior, product,
    resample, resolve,
};
use crate::rows::Real;
use crate::solver::member::Member;
use crate::solver::recording::{Basis, BufferId, Product, Resample, Stage};

/// Runs the stages for a tile of members. Products take the whole tile; the stages between two products run member by member,
/// so that a member's rows are still in the cache when the next stage reads them. Members whose rows are known at their starts
/// have no part in the stages that would make them.
pub fn linearise<R: Real>(
    inputs: &Inputs<R>,
    known: Option<&Known<R>>,
    tile: &mut Tile<R>,
    members: &mut [&mut Member],
) {
    let head = |member: &&mut Member| match known {
        Some(known) if member.rounds == 0 => known.head(&member.trial),
        _ => Head::Unknown,
    };
    let mut heads: Vec<Head<R>> = members.iter().map(head).collect();
    let unknown = heads.iter().filter(|head| !head.is_known()).count();
    let is_head = |stage: usize| known.is_some_and(|known| known.heads.is_head(stage));
    let mut first = 0;
    for run in inputs.recording.stages.chunk_by(together) {
        if let [Stage::Product(stage)] = run {
            let count = if is_head(first) { unknown } else { members.len() };
            tile.timed(first, |tile| run_product(inputs, tile, stage, count));
        } else {
            let mut blocks: Vec<Range<usize>> = Vec::with_capacity(inputs.recording.buffers.len());
            // those that are known have no rows in the tile
            let mut place = 0;
            for (member, head) in members.iter_mut().zip(&mut heads) {
                let block = |b| tile.block(&inputs.recording, BufferId(b), place);
                blocks.clear();
                blocks.extend((0..inputs.recording.buffers.len()).map(block));
                for (k, stage) in run.iter().enumerate() {
                    let k = first + k;
                    match stage {
                        _ if head.is_known() && is_head(k) => {}
                        Stage::Resample(stage) => {
                            let known = known.map(|known| (known, &mut *head));
                            tile.timed(k, |tile| run_resample((inputs, &blocks), tile, (k, stage), (member, known)));
                        }
                        _ => tile.timed(k, |tile| run_stage((inputs, &blocks), tile, stage, member)),
                    }
                }
                place += usize::from(!head.is_known());
            }
        }
        first += run.len();
    }
    for (member, head) in members.iter().zip(heads) {
        if let (Some(known), Head::Again(rows)) = (known, head) {
            known.keep(&member.trial, rows);
        }
    }
    if let Some(tally) = &mut tile.tally {
        let members = |stage: usize| if is_head(stage) { unknown } else { members.len() };
        (0..first).for_each(|stage| tally.count(stage, members(stage)));
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
        Stage::Product(_) | Stage::Resample(_) => {}
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

/// A resampling, from the tile's rows or from those that are known; what comes again is copied, to be kept.
fn run_resample<R: Real>(
    (inputs, blocks): (&Inputs<R>, &[Range<usize>]),
    tile: &mut Tile<R>,
    (number, stage): (usize, &Resample),
    (member, known): (&Member, Option<(&Known<R>, &mut Head<R>)>),
) {
    let mut output = tile.take(stage.output);
    let mut input = &tile.rows(stage.input)[blocks[stage.input.0].clone()];
    match known {
        Some((_, Head::Again(rows))) => rows.extend_from_slice(input),
        Some((known, Head::Known(rows))) => input = known.heads.input(rows, number, input.len()),
        _ => {}
    }
    resample::Resample {
        stage,
        parameters: &inputs.recording.parameters,
        u: &member.trial,
        input,
        index: inputs.index(stage.index, member.spectrum),
        fraction: inputs.float(stage.fraction, member.spectrum),
        output: &mut output[blocks[stage.output.0].clone()],
    }
    .run();
    tile.give_back(stage.output, output);
}
