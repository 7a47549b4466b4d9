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

/// Records the stages that turn an arm's template into the sums of the fit: broadening, sampling, resolution,
/// continuum, normal equations.
pub fn record_spectrum(
    recording: &mut Recording,
    model: &SpectralModel,
    arm: &ModelArm,
    layout: ArmLayout,
    template: RowBuffer,
) -> ArmBuffers {
    // 1. Broaden the template by rotation and line spread.
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
    let mut template = record_broadening(recording, model, arm, &segments, template);
    // 2. Allocate the arm's arrays.
    let pixels = padded(layout.pixels);
    let grid = if layout.shared_grid {
        Scope::Batch
    } else {
        Scope::Spectrum
    };
    let cleaned = if model.loss().is_some() && arm.continuum.terms > 0 {
        pixels
    } else {
        0
    };
    let mut buffers = ArmBuffers::record(recording, arm, [pixels, cleaned], grid, template.buffer);
    if arm.pixels == Some(Pixels::Integrate) {
        buffers.edges =
            Some(recording.buffer(buffer_name(arm, "edges"), grid, Kind::Float, 2 * pixels));
    }
    // 3. Sample the template at the spectrum's pixels.
    if !layout.is_template {
        template = record_sampling(recording, model, arm, segments, template, pixels, buffers);
    }
    buffers.model = template.buffer;
    // 4. Multiply by the spectrum's resolution matrix.
    if layout.diagonals > 0 {
        let length = layout.diagonals * pixels;
        let matrix = recording.buffer(
            buffer_name(arm, "resolution"),
            Scope::Spectrum,
            Kind::Float,
            length,
        );
        buffers.resolution = Some((layout.diagonals, matrix));
        buffers.model = record_matrix(
            recording,
            buffer_name(arm, "model"),
            template,
            layout.diagonals,
            matrix,
        )
        .buffer;
    }
    // 5. Fit the continuum, and sum χ² and the normal equations.
    let scope = if layout.own_basis {
        Scope::Spectrum
    } else {
        grid
    };
    record_sums(recording, model, arm, pixels, scope, &mut buffers);
    buffers
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

/// Records the Doppler shift and the interpolation of the template at the spectrum's pixels, or its means over them.
/// Returns the rows there.
fn record_sampling(
    recording: &mut Recording,
    model: &SpectralModel,
    arm: &ModelArm,
    segments: Vec<Segment>,
    mut template: RowBuffer,
    pixels: usize,
    buffers: ArmBuffers,
) -> RowBuffer {
    let RowBuffer { rows, columns, .. } = template;
    // 1. Compute the coefficients of the cubic spline.
    if arm.interpolation == Interpolation::Cubic {
        let output = recording.buffer(
            buffer_name(arm, "coefficients"),
            Scope::Member,
            Kind::Float,
            rows * columns,
        );
        recording.stages.push(Stage::Prefilter(Prefilter {
            input: template.buffer,
            output,
            rows,
            columns,
            segments: segments.clone(),
        }));
        template.buffer = output;
    }
    // 2. Evaluate the shifted template at the pixels' centres, or its means over the pixels.
    let resample = Resample {
        input: template.buffer,
        input_columns: columns,
        output: template.buffer,
        rows,
        pixels,
        index: buffers.index,
        fraction: buffers.fraction,
        segments,
        interpolation: arm.interpolation,
        velocity: model.velocity,
        derivatives: !recording.values_only,
    };
    let rows = resample.output_rows();
    let output = recording.buffer(
        buffer_name(arm, "observed"),
        Scope::Member,
        Kind::Float,
        rows * pixels,
    );
    let centres = Resample { output, ..resample };
    recording.stages.push(match buffers.edges {
        Some(edges) => Stage::Integrate(Integrate { centres, edges }),
        None => Stage::Resample(centres),
    });
    RowBuffer {
        buffer: output,
        rows,
        columns: pixels,
    }
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

/// Records the continuum fit, if the arm has a continuum, and the sums of χ² and the normal equations over pixels.
/// `grid` is the scope of the continuum basis.
fn record_sums(
    recording: &mut Recording,
    model: &SpectralModel,
    arm: &ModelArm,
    pixels: usize,
    grid: Scope,
    buffers: &mut ArmBuffers,
) {
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
            model.derivative_parameters(arm)
        },
        data,
        weight,
        continuum: buffers.basis.zip(buffers.solution),
        loss,
    }));
}
