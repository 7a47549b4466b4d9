//! Random recordings and batches.

use std::sync::Arc;

use super::build::{Builder, Ids};
use popfit::Estimator;
use popfit::low_level::cpu::CpuDevice;
use popfit::low_level::recording::*;
use popfit::low_level::solver::{Batch, Device, LevenbergMarquardt, Method};
use popfit_testing::random::Random;

/// Stride of a template row: two segments and padding.
pub const COLUMNS: usize = 96;
pub const SEGMENTS: [(usize, usize, f64); 2] = [(0, 50, 9000.0), (52, 93, 12_000.0)];
/// Stride of an observed row: `USED` pixels and padding.
pub const PIXELS: usize = 80;
const USED: usize = 77;
pub const HIDDEN: usize = 16;
pub const LABELS: usize = 3;
/// Diagonals of a spectrum's resolution matrix.
pub const DIAGONALS: usize = 5;

pub const ACTIVATIONS: [Activation; 8] = [
    Activation::Silu,
    Activation::LeakyRelu,
    Activation::Relu,
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::Gelu,
    Activation::Identity,
    Activation::Exp { clip: 2.0 },
];

/// Contents of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub activation: Option<Activation>,
    pub per_pixel: bool,
    /// The output layer's product is one of f16 numbers.
    pub halves: bool,
    pub linear: bool,
    /// Pixels are means of the template instead of values.
    pub integrate: bool,
    pub velocity_fixed: bool,
    pub custom: bool,
    /// With `custom`: what it lacks of the data bends the cost.
    pub bent: bool,
    /// With `custom`: not least squares.
    pub estimator: Option<Estimator>,
    /// vsini is free.
    pub rotation: bool,
    /// A line spread on the template's pixels.
    pub spread: bool,
    /// The spectra have resolution matrices.
    pub resolution: bool,
    /// The third label depends on the second, too.
    pub tied: bool,
    pub hulls: bool,
    pub priors: bool,
    /// Continuum terms.
    pub terms: usize,
    /// A robust loss of spectra. The continuum's first coefficients are those of data without outliers.
    pub loss: Option<Estimator>,
    /// The first spectrum has no weight at all.
    pub masked: bool,
    /// Some pixels of every spectrum are masked.
    pub marked: bool,
    /// Bounds that fits run into.
    pub tight: bool,
    /// Rows in f32 on the CPU, too: both devices take the same decisions.
    pub narrow: bool,
}

impl Model {
    pub const PLAIN: Model = Model {
        activation: Some(Activation::Silu),
        per_pixel: false,
        halves: false,
        linear: false,
        integrate: false,
        velocity_fixed: false,
        custom: false,
        bent: false,
        estimator: None,
        rotation: false,
        spread: false,
        resolution: false,
        tied: false,
        hulls: false,
        priors: false,
        terms: 0,
        loss: None,
        masked: false,
        marked: false,
        tight: false,
        narrow: false,
    };
}

/// A recording and a batch for it.
pub struct Case {
    pub recording: Recording,
    pub batch: Batch,
}

impl Case {
    pub fn new(model: Model, members: usize, seed: u64) -> Case {
        let mut random = Random(seed);
        let mut builder = Builder {
            recording: Recording::default(),
            random: random.clone(),
            model,
        };
        let ids = builder.build();
        random.0 ^= 0x5555;
        let parameters = builder.recording.parameters.len();
        let spectra = members.div_ceil(2);
        let mut batch = Batch {
            spectra,
            ..Batch::default()
        };
        batch.blocks = blocks(&ids, model, spectra, &mut random);
        let bound = if model.tight { 0.45 } else { 1.5 };
        for _ in 0..spectra * parameters {
            batch.lower.push(f64::from(-bound as f32));
            batch.upper.push(f64::from(bound as f32));
            batch.prior_mean.push(random.around(0.5));
            batch.prior_weight.push(if model.priors {
                f64::from((3.0 * random.uniform()) as f32)
            } else {
                0.0
            });
        }
        let truth: Vec<f64> = (0..spectra * parameters)
            .map(|_| random.around(0.5))
            .collect();
        let mut case = Case {
            recording: builder.recording,
            batch,
        };
        case.observe(&ids, model, &truth, &mut random);
        case.batch.group = (0..members).map(|m| (m / 2) as u32).collect();
        let start = |i: usize| {
            truth[i / parameters / 2 * parameters + i % parameters] + random.around(0.06)
        };
        let bounded = |u: f64| f64::from(u.clamp(-bound, bound) as f32);
        case.batch.starts = (0..members * parameters).map(start).map(bounded).collect();
        case
    }

    /// With each start of a spectrum three times, a little apart.
    pub fn of_more_starts(mut self) -> Case {
        let parameters = self.recording.parameters.len();
        let (old, mut starts, mut group) = (&self.batch, Vec::new(), Vec::new());
        for own in 0..old.spectra as u32 {
            for shift in [0.0, 0.03, -0.05] {
                let members = (0..old.members()).filter(|m| old.group[*m] == own);
                for start in members.map(|m| &old.starts[m * parameters..(m + 1) * parameters]) {
                    starts.extend(start.iter().map(|u| f64::from((u + shift) as f32)));
                    group.push(own);
                }
            }
        }
        (self.batch.starts, self.batch.group) = (starts, group);
        self
    }

    /// Data: the model at the truth, times a continuum where there is one, with noise.
    fn observe(&mut self, ids: &Ids, model: Model, truth: &[f64], random: &mut Random) {
        self.batch.group = (0..self.batch.spectra as u32).collect();
        self.batch.starts = truth.to_vec();
        let recording = Arc::new(self.recording.clone());
        let mut population = CpuDevice
            .population(
                recording,
                &Method::LevenbergMarquardt(LevenbergMarquardt::default()),
                self.batch.spectra.max(1),
            )
            .expect("a population");
        pollster::block_on(population.load(&self.batch)).expect("a batch");
        let id = self.buffer("rows");
        let rows = pollster::block_on(population.inspect(id)).expect("rows");
        let length = self.recording.block(id).length;
        let Some((_, Values::F32(weight))) = self
            .batch
            .blocks
            .iter()
            .find(|(id, _)| Some(*id) == ids.weight)
        else {
            return;
        };
        let flux = |i: usize| {
            let x = (i % PIXELS) as f64 / PIXELS as f64;
            let smooth = if model.terms > 0 { 3.0 + x } else { 1.0 };
            let lacks = if model.bent {
                0.5 * (23.0 * x).sin()
            } else {
                0.0
            };
            f64::from(weight[i]) * (rows[i / PIXELS * length + i % PIXELS] * smooth - lacks)
        };
        let cleaned: Vec<f32> = (0..weight.len())
            .map(|i| {
                if weight[i] > 0.0 {
                    (flux(i) + 2.0 * random.around(1.0)) as f32
                } else {
                    0.0
                }
            })
            .collect();
        let data: Vec<f32> = (0..)
            .zip(cleaned.iter().copied())
            // some counts are 0, some residuals far out
            .map(|(i, d)| match (model.estimator.or(model.loss), i % 11) {
                (Some(Estimator::Poisson), 5) => 0.0,
                (Some(Estimator::Poisson), _) => d.round().max(0.0),
                (Some(_), 5) => 2.0 * d,
                _ => d,
            })
            .collect();
        let is_doubled = ids
            .data
            .is_some_and(|id| self.recording.block(id).length > PIXELS);
        let doubled = data
            .chunks(PIXELS)
            .zip(cleaned.chunks(PIXELS))
            .flat_map(|(data, cleaned)| [data, cleaned].concat());
        let data = if is_doubled { doubled.collect() } else { data };
        for (id, values) in &mut self.batch.blocks {
            if Some(*id) == ids.data {
                *values = Values::F32(data.clone().into());
            }
        }
    }

    pub fn buffer(&self, name: &str) -> BufferId {
        BufferId(
            self.recording
                .buffers
                .iter()
                .position(|b| b.name == name)
                .expect("the buffer exists"),
        )
    }

    /// Rows of a member's block.
    pub fn rows(&self, id: BufferId) -> usize {
        let stride = match self.recording.block(id).name.as_str() {
            "labels" => 4,
            "layer 0" | "halves" => HIDDEN,
            "rows" | "unresolved" => PIXELS,
            _ => COLUMNS,
        };
        self.recording.block(id).length / stride
    }

    /// The same spectra with some of the members, in another order.
    pub fn select(&self, members: &[usize]) -> Case {
        let parameters = self.recording.parameters.len();
        let mut batch = self.batch.clone();
        batch.group = members.iter().map(|m| self.batch.group[*m]).collect();
        batch.starts = members
            .iter()
            .flat_map(|m| self.batch.starts[m * parameters..(m + 1) * parameters].to_vec())
            .collect();
        let mut used: Vec<u32> = batch.group.clone();
        used.sort_unstable();
        used.dedup();
        batch.group = batch
            .group
            .iter()
            .map(|g| used.binary_search(g).expect("used") as u32)
            .collect();
        let pick = |v: &[f64]| {
            used.iter()
                .flat_map(|s| v[*s as usize * parameters..][..parameters].to_vec())
                .collect()
        };
        batch.lower = pick(&self.batch.lower);
        batch.upper = pick(&self.batch.upper);
        batch.prior_mean = pick(&self.batch.prior_mean);
        batch.prior_weight = pick(&self.batch.prior_weight);
        batch.spectra = used.len();
        for (id, values) in &mut batch.blocks {
            let length = self.recording.block(*id).length;
            if let (Scope::Spectrum, Values::F32(v)) = (self.recording.block(*id).scope, &*values) {
                *values = Values::F32(
                    used.iter()
                        .flat_map(|s| v[*s as usize * length..][..length].to_vec())
                        .collect::<Vec<_>>()
                        .into(),
                );
            }
        }
        Case {
            recording: self.recording.clone(),
            batch,
        }
    }
}

fn blocks(ids: &Ids, model: Model, spectra: usize, random: &mut Random) -> Vec<(BufferId, Values)> {
    let mut blocks = Vec::new();
    if let (Some(index), Some(fraction)) = (ids.index, ids.fraction) {
        // pixels of both segments, some beyond their edges when shifted; padding at the end
        let position = |j: usize| {
            if j < 40 {
                (0, 1.2 * j as f64)
            } else {
                (1, 52.0 + 1.1 * (j - 40) as f64)
            }
        };
        let packed = |j: usize| {
            if j < USED {
                position(j).0 << 24 | position(j).1 as i32
            } else {
                -1
            }
        };
        let fractions = (0..PIXELS)
            .map(|j| (position(j).1.fract() + 0.001 * random.uniform()).min(0.999) as f32);
        blocks.push((fraction, Values::F32(fractions.collect::<Vec<_>>().into())));
        blocks.push((
            index,
            Values::I32((0..PIXELS).map(packed).collect::<Vec<_>>().into()),
        ));
    }
    if let Some(edges) = ids.edges {
        // from far narrower than a template pixel to half a segment
        let widths = (0..2 * PIXELS)
            .map(|j| (0.01 + random.uniform() * [0.4, 1.0, 3.0, 20.0][j % 4]) as f32);
        blocks.push((edges, Values::F32(widths.collect::<Vec<_>>().into())));
    }
    if let Some(id) = ids.predictor {
        blocks.push((
            id,
            Values::F32(
                (0..PIXELS)
                    .map(|j| j as f32 / PIXELS as f32)
                    .collect::<Vec<_>>()
                    .into(),
            ),
        ));
    }
    if let (Some(basis), Some(transform)) = (ids.basis, ids.transform) {
        let angle = |j: usize| (2.0 * (j as f64 + 0.5) / PIXELS as f64 - 1.0).acos();
        let chebyshev = |i: usize| (0.12 * ((i / PIXELS) as f64 * angle(i % PIXELS)).cos()) as f32;
        blocks.push((
            basis,
            Values::F32(
                (0..model.terms * PIXELS)
                    .map(chebyshev)
                    .collect::<Vec<_>>()
                    .into(),
            ),
        ));
        let mut entry = |i: usize| {
            let (row, column) = (i / model.terms % model.terms, i % model.terms);
            (if row == column {
                1.0
            } else if column < row {
                random.around(0.1)
            } else {
                0.0
            }) as f32
        };
        blocks.push((
            transform,
            Values::F32(
                (0..spectra * model.terms * model.terms)
                    .map(&mut entry)
                    .collect::<Vec<_>>()
                    .into(),
            ),
        ));
    }
    if let Some(id) = ids.hull_weights {
        let weights = (0..2 * spectra).map(|_| (25.0 + 5.0 * random.uniform()) as f32);
        blocks.push((id, Values::F32(weights.collect::<Vec<_>>().into())));
    }
    if let Some(matrix) = ids.matrix {
        let values =
            (0..spectra * DIAGONALS * PIXELS).map(|_| (random.uniform() / DIAGONALS as f64) as f32);
        blocks.push((matrix, Values::F32(values.collect::<Vec<_>>().into())));
    }
    let mut weight = Vec::new();
    for i in 0..spectra * PIXELS {
        let (spectrum, j) = (i / PIXELS, i % PIXELS);
        let bad = j >= USED || (model.masked && spectrum == 0) || (model.marked && j % 7 == 3);
        weight.push(if bad {
            0.0
        } else {
            20.0 + 5.0 * random.uniform()
        } as f32);
    }
    let doubled = if model.loss.is_some() && model.terms > 0 {
        2
    } else {
        1
    };
    blocks.push((
        ids.data.expect("data"),
        Values::F32(vec![0.0; doubled * weight.len()].into()),
    ));
    blocks.push((ids.weight.expect("weight"), Values::F32(weight.into())));
    blocks
}
