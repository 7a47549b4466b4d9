//! Executes a recording's stages for a tile of members.

use std::ops::Range;

use super::known::{Head, Heads, Known};
use super::tile::{Inputs, Tile, together};
use crate::cpu::{
    activate, broaden, continuum, custom, estimate, labels, narrow, normal, per_pixel, prefilter, prior, product,
    resample, resolve,
};
use crate::rows::Real;
use crate::solver::member::Member;
use crate::solver::recording::{Basis, BufferId, Product, Stage};

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
                for (k, stage) in run.iter().enumerate().map(|(k, stage)| (first + k, stage)) {
                    if head.is_known() && is_head(k) {
                        continue;
                    }
                    let rows = Rows { inputs, blocks: &blocks, known: known.map(|known| (&known.heads, &*head)) };
                    tile.timed(k, |tile| run_stage(&rows, tile, stage, member));
                    if let (Some(id), Head::Again(made)) = (known.and_then(|known| known.heads.end_of(k)), &mut *head) {
                        made.extend_from_slice(&tile.rows(id)[blocks[id.0].clone()]);
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
    let used = &mut output[..count * stage.rows * stage.columns];
    if let Some(packed) = inputs.packed(stage.weight) {
        product::Product { input, packed, output: used, accumulate: false }.run();
    }
    tile.give_back(stage.output, output);
}

/// Where a member's rows are.
struct Rows<'a, R> {
    inputs: &'a Inputs<R>,
    /// By buffer, of the tile's.
    blocks: &'a [Range<usize>],
    /// What is known of the member instead.
    known: Option<(&'a Heads, &'a Head<R>)>,
}

impl<'a, R: Real> Rows<'a, R> {
    fn read(&self, tile: &'a Tile<R>, id: BufferId) -> &'a [R] {
        let block = self.blocks[id.0].clone();
        let known = self.known.and_then(|(heads, head)| head.rows(heads, id, block.len()));
        known.unwrap_or_else(|| &tile.rows(id)[block])
    }
}

/// One stage for the member whose rows these are.
fn run_stage<R: Real>(rows: &Rows<'_, R>, tile: &mut Tile<R>, stage: &Stage, member: &mut Member) {
    let inputs = rows.inputs;
    let recording = &*inputs.recording;
    let spectrum = member.spectrum;
    let at = |id: BufferId| rows.blocks[id.0].clone();
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
            narrow::narrow(rows.read(tile, stage.input), &mut output[at(stage.output)]);
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
                rows: stage.rows,
                columns: stage.columns,
                hidden: stage.hidden,
                labels: stage.labels,
                input_stride: stage.input_stride,
                activation: stage.activation,
                input: rows.read(tile, stage.input),
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
                input: rows.read(tile, stage.input),
                output: &mut output[at(stage.output)],
            }
            .run();
            tile.give_back(stage.output, output);
        }
        Stage::Prefilter(stage) => {
            let mut output = tile.take(stage.output);
            let input = rows.read(tile, stage.input);
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
                input: rows.read(tile, stage.input),
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
                input: rows.read(tile, stage.input),
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
                value: &rows.read(tile, stage.model)[..stage.pixels],
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
                model: rows.read(tile, stage.model),
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
            model: rows.read(tile, stage.model),
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
