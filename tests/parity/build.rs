//! Builds random recordings: network, observation, sums.

use std::sync::Arc;

use popfit::low_level::recording::*;

use super::cases::{COLUMNS, DIAGONALS, HIDDEN, LABELS, Model, PIXELS, SEGMENTS};
use popfit_testing::random::Random;

/// The batch's buffers.
#[derive(Default)]
pub struct Ids {
    pub index: Option<BufferId>,
    pub fraction: Option<BufferId>,
    pub edges: Option<BufferId>,
    pub predictor: Option<BufferId>,
    pub data: Option<BufferId>,
    pub weight: Option<BufferId>,
    pub basis: Option<BufferId>,
    pub transform: Option<BufferId>,
    pub matrix: Option<BufferId>,
    pub hull_weights: Option<BufferId>,
}

pub struct Builder {
    pub recording: Recording,
    pub random: Random,
    pub model: Model,
}

impl Builder {
    pub fn build(&mut self) -> Ids {
        self.recording.precision = if self.model.narrow {
            Precision::F32
        } else {
            Precision::F64
        };
        for (name, origin, scale) in [
            ("teff", 5600.0, 1500.0),
            ("logg", 3.5, 1.5),
            ("feh", -0.5, 1.0),
            ("velocity", 20.0, 300.0),
        ] {
            if name != "velocity" || !self.model.velocity_fixed {
                self.recording.parameters.push(Parameter {
                    name: name.into(),
                    origin,
                    scale,
                });
            }
        }
        if self.model.rotation {
            self.recording.parameters.push(Parameter {
                name: "vsini".into(),
                origin: 120.0,
                scale: 100.0,
            });
        }
        let inputs = label_inputs(self.model.tied);
        let hulls = if self.model.hulls {
            self.make_hulls(&inputs)
        } else {
            Vec::new()
        };
        let mut ids = Ids::default();
        if !hulls.is_empty() {
            ids.hull_weights = Some(self.recording.buffer(
                "hull weights",
                Scope::Spectrum,
                Kind::Float,
                hulls.len(),
            ));
        }
        self.recording.stages.push(Stage::Prior(Prior {
            hulls,
            weights: ids.hull_weights,
        }));
        let rows = if self.model.custom {
            self.add_custom_model(&mut ids)
        } else {
            self.add_observed_template(inputs, &mut ids)
        };
        self.add_sums(rows, &mut ids);
        ids
    }

    fn declare_member_buffer(&mut self, name: &str, length: usize) -> BufferId {
        self.recording
            .buffer(name, Scope::Member, Kind::Float, length)
    }

    fn declare_constant(&mut self, name: &str, count: usize, size: f64) -> BufferId {
        let values = self.random.list(count, size);
        self.recording.constant(name, Values::F32(values.into()))
    }

    /// Makes a box in two of the labels, and one in the third that contains all points.
    fn make_hulls(&mut self, inputs: &[LabelInput]) -> Vec<HullRow> {
        let facets = vec![
            1.0, 0.0, -0.1, -1.0, 0.0, -0.1, 0.25, 1.0, -0.125, 0.0, -1.0, -0.1,
        ];
        let wide_box = vec![1.0, -50.0, -1.0, -50.0];
        vec![
            HullRow {
                labels: inputs[..2].to_vec(),
                facets,
            },
            HullRow {
                labels: inputs[2..].to_vec(),
                facets: wide_box,
            },
        ]
    }

    fn add_observed_template(&mut self, inputs: Vec<LabelInput>, ids: &mut Ids) -> BufferId {
        let rows = 1 + LABELS;
        let labels = self.declare_member_buffer("labels", rows * 4);
        self.recording.stages.push(Stage::Labels(Labels {
            inputs,
            output: labels,
            stride: 4,
            derivatives: true,
        }));
        let template = if self.model.per_pixel {
            self.add_per_pixel_networks(labels)
        } else {
            self.add_network(labels)
        };
        let segments: Vec<Segment> = SEGMENTS
            .iter()
            .map(|&(start, end, inverse_step)| Segment {
                start,
                end,
                inverse_step,
            })
            .collect();
        let (source, rows) = self.add_template_stages(template, rows, &segments);
        let velocity = if self.model.velocity_fixed {
            Velocity::Fixed(33.0)
        } else {
            Velocity::Parameter(LABELS)
        };
        let interpolation = if self.model.linear {
            Interpolation::Linear
        } else {
            Interpolation::Cubic
        };
        let index = self
            .recording
            .buffer("index", Scope::Batch, Kind::Index, PIXELS);
        let fraction = self
            .recording
            .buffer("fraction", Scope::Batch, Kind::Float, PIXELS);
        ids.index = Some(index);
        ids.fraction = Some(fraction);
        let output_rows = rows + usize::from(!self.model.velocity_fixed);
        let name = if self.model.resolution {
            "unresolved"
        } else {
            "rows"
        };
        let output = self.declare_member_buffer(name, output_rows * PIXELS);
        let centres = Resample {
            input: source,
            input_columns: COLUMNS,
            output,
            rows,
            pixels: PIXELS,
            index,
            fraction,
            segments,
            interpolation,
            velocity,
            derivatives: true,
        };
        let stage = if self.model.integrate {
            let edges = self
                .recording
                .buffer("edges", Scope::Batch, Kind::Float, 2 * PIXELS);
            ids.edges = Some(edges);
            Stage::Integrate(Integrate { centres, edges })
        } else {
            Stage::Resample(centres)
        };
        self.recording.stages.push(stage);
        if !self.model.resolution {
            return output;
        }
        let matrix =
            self.recording
                .buffer("matrix", Scope::Spectrum, Kind::Float, DIAGONALS * PIXELS);
        ids.matrix = Some(matrix);
        self.add_resolve(output, ("rows", output_rows, PIXELS), (DIAGONALS, matrix))
    }

    /// Adds rotation, line spread and the spline's coefficients; returns the last buffer, and its number of rows.
    fn add_template_stages(
        &mut self,
        mut input: BufferId,
        mut rows: usize,
        segments: &[Segment],
    ) -> (BufferId, usize) {
        if self.model.rotation {
            let rotation = Rotation::Parameter {
                parameter: self.recording.parameters.len() - 1,
                most: 270.0,
            };
            let output = self.declare_member_buffer("broadened", (rows + 1) * COLUMNS);
            let segments = segments.to_vec();
            let stage = Broaden {
                input,
                output,
                rows,
                columns: COLUMNS,
                segments,
                rotation,
                derivatives: true,
            };
            self.recording.stages.push(Stage::Broaden(stage));
            input = output;
            rows += 1;
        }
        if self.model.spread {
            // 75 diagonals are wider than half a row.
            let matrix = self.declare_constant("spread", 75 * COLUMNS, 0.05);
            input = self.add_resolve(input, ("spread rows", rows, COLUMNS), (75, matrix));
        }
        if !self.model.linear {
            let output = self.declare_member_buffer("coefficients", rows * COLUMNS);
            let stage = Prefilter {
                input,
                output,
                rows,
                columns: COLUMNS,
                segments: segments.to_vec(),
            };
            self.recording.stages.push(Stage::Prefilter(stage));
            input = output;
        }
        (input, rows)
    }

    fn add_resolve(
        &mut self,
        input: BufferId,
        (name, rows, pixels): (&str, usize, usize),
        (diagonals, matrix): (usize, BufferId),
    ) -> BufferId {
        let output = self.declare_member_buffer(name, rows * pixels);
        self.recording.stages.push(Stage::Resolve(Resolve {
            input,
            output,
            rows,
            pixels,
            diagonals,
            matrix,
        }));
        output
    }

    fn add_network(&mut self, labels: BufferId) -> BufferId {
        let rows = 1 + LABELS;
        let hidden = self.declare_member_buffer("layer 0", rows * HIDDEN);
        let weight = self.declare_constant("weight 0", 4 * HIDDEN, 0.8);
        let bias = self.declare_constant("bias 0", HIDDEN, 0.5);
        let product = Product {
            input: labels,
            weight,
            output: hidden,
            rows,
            inner: 4,
            columns: HIDDEN,
            factor: 1.0,
            added_to: None,
        };
        self.recording.stages.push(Stage::Product(product));
        if let Some(activation) = self.model.activation {
            let affine = Some((
                self.declare_constant("scale 0", HIDDEN, 1.5),
                self.declare_constant("offset 0", HIDDEN, 0.2),
            ));
            let stage = Activate {
                buffer: hidden,
                bias,
                affine,
                activation,
                rows,
                columns: HIDDEN,
            };
            self.recording.stages.push(Stage::Activate(stage));
        }
        let mut values = self.random.list(HIDDEN * COLUMNS, 0.25);
        let mut remainder = None;
        let (input, weight) = if self.model.halves {
            let mut half_buffer = |name: &str, length| {
                self.recording
                    .buffer(name, Scope::Member, Kind::Half, length)
            };
            let split = Split {
                input: hidden,
                halves: half_buffer("halves", rows * HIDDEN),
                remainder: half_buffer("remainder", 2 * HIDDEN),
                rows,
                columns: HIDDEN,
                factor: 8.0,
            };
            self.recording.stages.push(Stage::Split(split));
            values.iter_mut().for_each(|weight| *weight *= 4.0);
            let left = Values::F32(remainder_weights(&values).into());
            let weight = self.recording.half_constant("remainder weight", left);
            remainder = Some((split.remainder, weight));
            (
                split.halves,
                self.recording
                    .half_constant("weight 1", Values::F32(values.into())),
            )
        } else {
            (
                hidden,
                self.recording
                    .constant("weight 1", Values::F32(values.into())),
            )
        };
        let factor = if self.model.halves { 1.0 / 32.0 } else { 1.0 };
        let template = self.declare_member_buffer("template", rows * COLUMNS);
        let bias = self.declare_constant("bias 1", COLUMNS, 0.3);
        let product = Product {
            input,
            weight,
            output: template,
            rows,
            inner: HIDDEN,
            columns: COLUMNS,
            factor,
            added_to: None,
        };
        self.recording.stages.push(Stage::Product(product));
        if let Some((input, weight)) = remainder {
            self.recording.stages.push(Stage::Product(Product {
                input,
                weight,
                output: template,
                rows: 1,
                inner: 2 * HIDDEN,
                columns: COLUMNS,
                factor: factor / REMAINDER_SCALE,
                added_to: Some(rows),
            }));
        }
        let activation = Activation::Exp { clip: 300.0 };
        let stage = Activate {
            buffer: template,
            bias,
            affine: None,
            activation,
            rows,
            columns: COLUMNS,
        };
        self.recording.stages.push(Stage::Activate(stage));
        template
    }

    fn add_per_pixel_networks(&mut self, input: BufferId) -> BufferId {
        let rows = 1 + LABELS;
        let hidden = 5;
        let output = self.declare_member_buffer("template", rows * COLUMNS);
        let stage = PerPixel {
            input,
            input_stride: 4,
            labels: LABELS,
            hidden,
            w0: self.declare_constant("w0", hidden * LABELS * COLUMNS, 0.8),
            b0: self.declare_constant("b0", hidden * COLUMNS, 0.5),
            w1: self.declare_constant("w1", hidden * COLUMNS, 0.5),
            b1: self.declare_constant("b1", COLUMNS, 0.5),
            activation: Activation::Sigmoid,
            output,
            rows,
            columns: COLUMNS,
        };
        self.recording.stages.push(Stage::PerPixel(stage));
        output
    }

    /// (1 + u0 (x − 0.25)) / (1 + (2 + u1) x) + u2 x², or u0 cos 7x + 1.5 u0² sin 23x + u1 sin 11x + u2 x².
    fn add_custom_model(&mut self, ids: &mut Ids) -> BufferId {
        let parameters = self.recording.parameters.len();
        let rows = 4;
        let predictor = self
            .recording
            .buffer("predictor", Scope::Batch, Kind::Float, PIXELS);
        ids.predictor = Some(predictor);
        let output = self.declare_member_buffer("rows", rows * PIXELS);
        let body = if self.model.bent { BENT } else { RATIONAL };
        let wgsl = format!(
            "fn fill(x: f32, u: ptr<function, array<f32, {parameters}>>, out: ptr<function, array<f32, {rows}>>) {{
    {body}
    out[3] = x * x;
}}"
        );
        let bent = self.model.bent;
        let rust = move |x: f64, u: &[f64], out: &mut [f64]| {
            if bent {
                let c = (7.0 * x).cos();
                let s = 1.5 * (23.0 * x).sin();
                out[2] = (11.0 * x).sin();
                out[0] = u[0] * c + u[0] * u[0] * s + u[1] * out[2] + u[2] * x * x;
                out[1] = c + 2.0 * u[0] * s;
            } else {
                let denominator = 1.0 + (2.0 + u[1]) * x;
                let numerator = 1.0 + u[0] * (x - 0.25);
                out[0] = numerator / denominator + u[2] * x * x;
                out[1] = (x - 0.25) / denominator;
                out[2] = -numerator * x / (denominator * denominator);
            }
            out[3] = x * x;
        };
        let stage = Custom {
            name: format!("custom {bent}"),
            output,
            rows,
            pixels: PIXELS,
            predictors: 1,
            predictor,
            scale: None,
            table: Arc::default(),
            wgsl,
            rust: pointwise(rust),
            many: None,
        };
        self.recording.stages.push(Stage::Custom(stage));
        output
    }

    fn add_sums(&mut self, model: BufferId, ids: &mut Ids) {
        let Model { terms, loss, .. } = self.model;
        let (cleaned_pixels, refinement_terms) = if loss.is_some() && terms > 0 {
            (PIXELS, terms)
        } else {
            (0, 0)
        };
        let data = self.recording.buffer(
            "data",
            Scope::Spectrum,
            Kind::Float,
            PIXELS + cleaned_pixels,
        );
        let weight = self
            .recording
            .buffer("weight", Scope::Spectrum, Kind::Float, PIXELS);
        ids.data = Some(data);
        ids.weight = Some(weight);
        let mut continuum = None;
        if terms > 0 {
            let basis = self
                .recording
                .buffer("basis", Scope::Batch, Kind::Float, terms * PIXELS);
            let transform =
                self.recording
                    .buffer("transform", Scope::Spectrum, Kind::Float, terms * terms);
            ids.basis = Some(basis);
            ids.transform = Some(transform);
            let basis = Basis {
                terms,
                basis,
                transform,
            };
            let solution =
                self.declare_member_buffer("solution", terms + terms * terms + refinement_terms);
            let stage = Continuum {
                model,
                pixels: PIXELS,
                data,
                weight,
                basis,
                solution,
                loss,
            };
            self.recording.stages.push(Stage::Continuum(stage));
            continuum = Some((basis, solution));
        }
        // Velocity and vsini come after the labels in the parameters, and before them in the rows.
        let parameters = self.recording.parameters.len();
        let columns = if self.model.custom {
            vec![0, 1, 2]
        } else {
            (LABELS..parameters).chain(0..LABELS).collect()
        };
        let pixels = PIXELS;
        self.recording.stages.push(match self.model.estimator {
            None => Stage::Normal(Normal {
                model,
                pixels,
                columns,
                data,
                weight,
                continuum,
                loss,
            }),
            Some(estimator) => Stage::Estimate(Estimate {
                estimator,
                model,
                pixels,
                columns,
                data,
                weight,
            }),
        });
    }
}

const RATIONAL: &str = "let d = 1.0 + (2.0 + u[1]) * x;
    let n = 1.0 + u[0] * (x - 0.25);
    out[0] = n / d + u[2] * x * x;
    out[1] = (x - 0.25) / d;
    out[2] = -n * x / (d * d);";

const BENT: &str = "let c = cos(7.0 * x);
    let s = 1.5 * sin(23.0 * x);
    out[2] = sin(11.0 * x);
    out[0] = u[0] * c + u[0] * u[0] * s + u[1] * out[2] + u[2] * x * x;
    out[1] = c + 2.0 * u[0] * s;";

fn label_inputs(tied: bool) -> Vec<LabelInput> {
    let label = |p, transform, mean, std| LabelInput {
        source: Source::Parameter(p),
        transform,
        mean,
        std,
    };
    let mut inputs = vec![
        label(0, Transform::Log10, 3.74, 0.12),
        label(1, Transform::Identity, 3.4, 0.9),
        label(2, Transform::Identity, -0.6, 0.6),
    ];
    if tied {
        inputs[0].source = Source::Linear {
            constant: 100.0,
            terms: vec![(0, 0.95), (1, 40.0)],
        };
        inputs[2].source = Source::Linear {
            constant: 0.2,
            terms: vec![(2, 0.9), (1, -0.1)],
        };
    }
    inputs
}
