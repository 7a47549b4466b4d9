//! Random recordings and batches.

use std::sync::Arc;

use super::build::{Builder, Ids};
use popfit::Estimator;
use popfit::low_level::cpu::CpuDevice;
use popfit::low_level::recording::*;
use popfit::low_level::solver::{Backend, Batch, LevenbergMarquardt};
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
    /// With `custom`: the data have a part that the model lacks, so that the secant term matters.
    pub bent: bool,
    /// With `custom`: estimator other than least squares.
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
    /// Bounds are so tight that fits meet them.
    pub tight: bool,
    /// Rows in f32 on the CPU, too: both devices take the same decisions.
    pub narrow: bool,
}

impl Model {
    /// A network, splines and a free velocity, without continuum.
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
        batch.blocks = make_blocks(&ids, model, spectra, &mut random);
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
        case.make_data(&ids, model, &truth, &mut random);
        case.batch.group = (0..members).map(|m| (m / 2) as u32).collect();
        case.batch.starts = (0..members * parameters)
            .map(|i| {
                let true_value = truth[i / parameters / 2 * parameters + i % parameters];
                let start = true_value + random.around(0.06);
                f64::from(start.clamp(-bound, bound) as f32)
            })
            .collect();
        case
    }

    /// Returns the case with each start three times, a little shifted.
    pub fn with_tripled_starts(mut self) -> Case {
        let parameters = self.recording.parameters.len();
        let original = &self.batch;
        let mut starts = Vec::new();
        let mut group = Vec::new();
        for spectrum in 0..original.spectra as u32 {
            for shift in [0.0, 0.03, -0.05] {
                let members = (0..original.members()).filter(|m| original.group[*m] == spectrum);
                for m in members {
                    let start = &original.starts[m * parameters..(m + 1) * parameters];
                    starts.extend(start.iter().map(|u| f64::from((u + shift) as f32)));
                    group.push(spectrum);
                }
            }
        }
        self.batch.starts = starts;
        self.batch.group = group;
        self
    }

    /// Makes the data: the model at the truth, times a continuum if there is one, with noise.
    fn make_data(&mut self, ids: &Ids, model: Model, truth: &[f64], random: &mut Random) {
        self.batch.group = (0..self.batch.spectra as u32).collect();
        self.batch.starts = truth.to_vec();
        let recording = Arc::new(self.recording.clone());
        let mut population = CpuDevice
            .population(
                recording,
                &LevenbergMarquardt::default(),
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
            let continuum = if model.terms > 0 { 3.0 + x } else { 1.0 };
            let missing_in_model = if model.bent {
                0.5 * (23.0 * x).sin()
            } else {
                0.0
            };
            f64::from(weight[i])
                * (rows[i / PIXELS * length + i % PIXELS] * continuum - missing_in_model)
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
            // Some counts are 0, some residuals are outliers.
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

    /// Returns the buffer of this name.
    pub fn buffer(&self, name: &str) -> BufferId {
        BufferId(
            self.recording
                .buffers
                .iter()
                .position(|b| b.name == name)
                .expect("the buffer exists"),
        )
    }

    /// Returns the number of rows of a member's block.
    pub fn rows(&self, id: BufferId) -> usize {
        let stride = match self.recording.block(id).name.as_str() {
            "labels" => 4,
            "layer 0" | "halves" => HIDDEN,
            "rows" | "unresolved" => PIXELS,
            _ => COLUMNS,
        };
        self.recording.block(id).length / stride
    }

    /// Returns a case of these members, in this order, with the spectra that they need.
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
        let of_used_spectra = |values: &[f64]| {
            used.iter()
                .flat_map(|s| values[*s as usize * parameters..][..parameters].to_vec())
                .collect()
        };
        batch.lower = of_used_spectra(&self.batch.lower);
        batch.upper = of_used_spectra(&self.batch.upper);
        batch.prior_mean = of_used_spectra(&self.batch.prior_mean);
        batch.prior_weight = of_used_spectra(&self.batch.prior_weight);
        batch.spectra = used.len();
        for (id, values) in &mut batch.blocks {
            let length = self.recording.block(*id).length;
            let is_of_spectra = self.recording.block(*id).scope == Scope::Spectrum;
            if is_of_spectra && let Values::F32(numbers) = &*values {
                *values = Values::F32(
                    used.iter()
                        .flat_map(|s| numbers[*s as usize * length..][..length].to_vec())
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

/// Makes the contents of the buffers of a batch, with data of 0.
fn make_blocks(
    ids: &Ids,
    model: Model,
    spectra: usize,
    random: &mut Random,
) -> Vec<(BufferId, Values)> {
    let mut blocks = Vec::new();
    if let (Some(index), Some(fraction)) = (ids.index, ids.fraction) {
        // Pixels of both segments, some beyond their edges when shifted; padding at the end.
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
        // From much narrower than a template pixel to half a segment.
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
            let row = i / model.terms % model.terms;
            let column = i % model.terms;
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
        let spectrum = i / PIXELS;
        let j = i % PIXELS;
        let is_masked =
            j >= USED || (model.masked && spectrum == 0) || (model.marked && j % 7 == 3);
        weight.push(if is_masked {
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
