//! Records the stages from an arm's template to the sums of a member: rotation, line spread, Doppler shift, resolution,
//! continuum, normal equations.

use super::sampling::padded;
use super::spread::LineSpreadMatrix;
use super::{Interpolation, ModelArm, Pixels, SpectralModel};
use crate::recording::{
    Basis, Broaden, BufferId, Continuum, Integrate, Kind, Normal, Prefilter, Recording, Resample,
    Resolve, Scope, Segment, Stage, Values,
};

/// The shape of one arm of the spectra that a recording is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmLayout {
    /// Number of pixels, at least that of each spectrum. The pixels behind a spectrum's last one have no weight.
    pub pixels: usize,
    /// True if all spectra of a batch have the same wavelength grid.
    pub shared_grid: bool,
    /// Number of diagonals of the spectra's resolution matrices; 0 if the model uses none.
    pub diagonals: usize,
    /// True if the pixels are the template's own, at rest, so that nothing is resampled.
    pub is_template: bool,
    /// True if there is one continuum basis per spectrum.
    pub own_basis: bool,
}

/// Buffers of an arm's arrays.
#[derive(Clone, Copy, Debug)]
pub struct ArmBuffers {
    pub data: BufferId,
    pub weight: BufferId,
    pub index: BufferId,
    pub fraction: BufferId,
    /// Edges of the pixels, if they integrate.
    pub edges: Option<BufferId>,
    pub basis: Option<Basis>,
    /// Number of diagonals and buffer of the spectra's resolution matrix.
    pub resolution: Option<(usize, BufferId)>,
    /// Rows: the value at the pixels, then its derivatives.
    pub model: BufferId,
    pub solution: Option<BufferId>,
}

impl ArmBuffers {
    /// Records the buffers of an arm of `pixels` pixels: data and weights per spectrum, and its sampling of the
    /// template in the scope `grid`. The rows of its model are in the buffer `model`. The data are followed by
    /// `cleaned` cleaned ones.
    fn record(
        recording: &mut Recording,
        arm: &ModelArm,
        [pixels, cleaned]: [usize; 2],
        grid: Scope,
        model: BufferId,
    ) -> ArmBuffers {
        ArmBuffers {
            data: recording.buffer(
                buffer_name(arm, "data"),
                Scope::Spectrum,
                Kind::Float,
                pixels + cleaned,
            ),
            weight: recording.buffer(
                buffer_name(arm, "weight"),
                Scope::Spectrum,
                Kind::Float,
                pixels,
            ),
            index: recording.buffer(buffer_name(arm, "index"), grid, Kind::Index, pixels),
            fraction: recording.buffer(buffer_name(arm, "fraction"), grid, Kind::Float, pixels),
            edges: None,
            basis: None,
            resolution: None,
            model,
            solution: None,
        }
    }
}

/// Returns the name of an arm's buffer in the recording.
pub(super) fn buffer_name(arm: &ModelArm, contents: &str) -> String {
    format!("{}.{contents}", arm.name)
}

/// Buffer of rows of a template, or at a spectrum's pixels: the value, then its derivatives.
#[derive(Clone, Copy)]
pub(super) struct RowBuffer {
    pub buffer: BufferId,
    pub rows: usize,
    /// Stride of the rows.
    pub columns: usize,
}

/// Records the stages from an arm's template to the sums of the fit, exposure by exposure.
pub struct ArmRecorder<'r> {
    recording: &'r mut Recording,
    model: &'r SpectralModel,
    segments: Vec<Segment>,
    /// The template, broadened by rotation and line spread.
    template: RowBuffer,
    /// Coefficients of the template's cubic spline, once an exposure has needed them.
    coefficients: Option<RowBuffer>,
}

impl<'r> ArmRecorder<'r> {
    /// Records the broadening of the template of arm `first`, the first exposure of this template.
    pub fn new(
        recording: &'r mut Recording,
        model: &'r SpectralModel,
        first: usize,
        template: RowBuffer,
    ) -> ArmRecorder<'r> {
        let arm = &model.arms[first];
        let segments: Vec<Segment> = arm
            .grid
            .segments
            .iter()
            .map(|segment| Segment {
                start: segment.start,
                end: segment.end,
                inverse_step: 1.0 / segment.step,
            })
            .collect();
        let template = record_broadening(recording, model, arm, &segments, template);
        ArmRecorder {
            recording,
            model,
            segments,
            template,
            coefficients: None,
        }
    }

    /// Records the stages of arm `a`, an exposure of the template: sampling, resolution, continuum, normal equations.
    pub fn record_exposure(&mut self, a: usize, layout: ArmLayout) -> ArmBuffers {
        let arm = &self.model.arms[a];
        // 1. Allocate the arm's arrays.
        let pixels = padded(layout.pixels);
        let grid = if layout.shared_grid {
            Scope::Batch
        } else {
            Scope::Spectrum
        };
        let cleaned = if self.model.loss().is_some() && arm.continuum.terms > 0 {
            pixels
        } else {
            0
        };
        let lengths = [pixels, cleaned];
        let mut buffers =
            ArmBuffers::record(self.recording, arm, lengths, grid, self.template.buffer);
        if arm.pixels == Some(Pixels::Integrate) {
            let name = buffer_name(arm, "edges");
            buffers.edges = Some(self.recording.buffer(name, grid, Kind::Float, 2 * pixels));
        }
        // 2. Sample the template at the spectrum's pixels.
        let rows = if layout.is_template {
            self.template
        } else {
            self.record_sampling(a, pixels, buffers)
        };
        buffers.model = rows.buffer;
        // 3. Multiply by the spectrum's resolution matrix.
        if layout.diagonals > 0 {
            let length = layout.diagonals * pixels;
            let name = buffer_name(arm, "resolution");
            let matrix = self
                .recording
                .buffer(name, Scope::Spectrum, Kind::Float, length);
            buffers.resolution = Some((layout.diagonals, matrix));
            let name = buffer_name(arm, "model");
            buffers.model =
                record_matrix(self.recording, name, rows, layout.diagonals, matrix).buffer;
        }
        // 4. Fit the continuum, and sum χ² and the normal equations.
        let scope = if layout.own_basis {
            Scope::Spectrum
        } else {
            grid
        };
        record_sums(self.recording, self.model, a, pixels, scope, &mut buffers);
        buffers
    }

    /// Records the Doppler shift and the interpolation of the template at the pixels of arm `a`, or its means over
    /// them. Returns the rows there.
    fn record_sampling(&mut self, a: usize, pixels: usize, buffers: ArmBuffers) -> RowBuffer {
        let arm = &self.model.arms[a];
        let input = match arm.interpolation {
            Interpolation::Cubic => self.record_spline(arm),
            Interpolation::Linear => self.template,
        };
        // Evaluate the shifted template at the pixels' centres, or its means over the pixels.
        let resample = Resample {
            input: input.buffer,
            input_columns: input.columns,
            output: input.buffer,
            rows: input.rows,
            pixels,
            index: buffers.index,
            fraction: buffers.fraction,
            segments: self.segments.clone(),
            interpolation: arm.interpolation,
            velocity: self.model.velocity_of(a),
            derivatives: !self.recording.values_only,
        };
        let rows = resample.output_rows();
        let output = self.recording.buffer(
            buffer_name(arm, "observed"),
            Scope::Member,
            Kind::Float,
            rows * pixels,
        );
        let centres = Resample { output, ..resample };
        self.recording.stages.push(match buffers.edges {
            Some(edges) => Stage::Integrate(Integrate { centres, edges }),
            None => Stage::Resample(centres),
        });
        RowBuffer {
            buffer: output,
            rows,
            columns: pixels,
        }
    }

    /// Returns the coefficients of the template's cubic spline, whose computation the first call records.
    fn record_spline(&mut self, arm: &ModelArm) -> RowBuffer {
        if let Some(coefficients) = self.coefficients {
            return coefficients;
        }
        let RowBuffer {
            buffer: input,
            rows,
            columns,
        } = self.template;
        let output = self.recording.buffer(
            buffer_name(arm, "coefficients"),
            Scope::Member,
            Kind::Float,
            rows * columns,
        );
        self.recording.stages.push(Stage::Prefilter(Prefilter {
            input,
            output,
            rows,
            columns,
            segments: self.segments.clone(),
        }));
        let coefficients = RowBuffer {
            buffer: output,
            ..self.template
        };
        self.coefficients = Some(coefficients);
        coefficients
    }
}

/// Records rotation and then line spread on the template's own pixels, where the model has them; returns the rows that
/// result.
fn record_broadening(
    recording: &mut Recording,
    model: &SpectralModel,
    arm: &ModelArm,
    segments: &[Segment],
    mut template: RowBuffer,
) -> RowBuffer {
    let RowBuffer { columns, .. } = template;
    // 1. Rotation adds a row for the derivative by vsini if this is free.
    if let Some(rotation) = model.vsini {
        let RowBuffer {
            buffer: input,
            rows,
            ..
        } = template;
        let stage = Broaden {
            input,
            output: input,
            rows,
            columns,
            segments: segments.to_vec(),
            rotation,
            derivatives: !recording.values_only,
        };
        let rows = stage.output_rows();
        let output = recording.buffer(
            buffer_name(arm, "broadened"),
            Scope::Member,
            Kind::Float,
            rows * columns,
        );
        recording
            .stages
            .push(Stage::Broaden(Broaden { output, ..stage }));
        template = RowBuffer {
            buffer: output,
            rows,
            columns,
        };
    }
    // 2. The line spread is a banded matrix.
    if let Some(spread) = LineSpreadMatrix::new(arm, columns) {
        let matrix = recording.constant(
            buffer_name(arm, "spread"),
            Values::F64(spread.values.into()),
        );
        template = record_matrix(
            recording,
            buffer_name(arm, "spread rows"),
            template,
            spread.diagonals,
            matrix,
        );
    }
    template
}

/// Records the product of a banded matrix with each row; returns the rows of the result.
fn record_matrix(
    recording: &mut Recording,
    name: String,
    input: RowBuffer,
    diagonals: usize,
    matrix: BufferId,
) -> RowBuffer {
    let RowBuffer {
        buffer,
        rows,
        columns,
    } = input;
    let output = recording.buffer(name, Scope::Member, Kind::Float, rows * columns);
    recording.stages.push(Stage::Resolve(Resolve {
        input: buffer,
        output,
        rows,
        pixels: columns,
        diagonals,
        matrix,
    }));
    RowBuffer {
        buffer: output,
        ..input
    }
}

/// Records the continuum fit of arm `a`, if it has a continuum, and the sums of χ² and the normal equations over
/// pixels.
/// `grid` is the scope of the continuum basis.
fn record_sums(
    recording: &mut Recording,
    model: &SpectralModel,
    a: usize,
    pixels: usize,
    grid: Scope,
    buffers: &mut ArmBuffers,
) {
    let arm = &model.arms[a];
    let ArmBuffers {
        data,
        weight,
        model: model_rows,
        ..
    } = *buffers;
    let terms = arm.continuum.terms;
    let loss = model.loss();
    // 1. Fit the continuum.
    if terms > 0 {
        // A robust loss also needs L⁻¹ Sᵀψ, which lies behind the solution.
        let projected_terms = if loss.is_some() { terms } else { 0 };
        let basis = Basis {
            terms,
            basis: recording.buffer(buffer_name(arm, "basis"), grid, Kind::Float, terms * pixels),
            transform: recording.buffer(
                buffer_name(arm, "transform"),
                Scope::Spectrum,
                Kind::Float,
                terms * terms,
            ),
        };
        let solution = recording.buffer(
            buffer_name(arm, "solution"),
            Scope::Member,
            Kind::Float,
            terms * (1 + terms) + projected_terms,
        );
        let stage = Continuum {
            model: model_rows,
            pixels,
            data,
            weight,
            basis,
            solution,
            loss,
        };
        recording.stages.push(Stage::Continuum(stage));
        buffers.basis = Some(basis);
        buffers.solution = Some(solution);
    }
    // 2. Sum χ² and the normal equations over the pixels.
    recording.stages.push(Stage::Normal(Normal {
        model: model_rows,
        pixels,
        columns: if recording.values_only {
            Vec::new()
        } else {
            model.derivative_parameters(a)
        },
        data,
        weight,
        continuum: buffers.basis.zip(buffers.solution),
        loss,
    }));
}
