//! From an arm's template rows to the member's sums: rotation, line spread, Doppler shift, resolution, continuum,
//! normal equations.

use super::sampling::padded;
use super::spread::Spread;
use super::{Interpolation, ModelArm, Pixels, SpectralModel};
use crate::recording::{
    Basis, Broaden, BufferId, Continuum, Integrate, Kind, Normal, Prefilter, Recording, Resample,
    Resolve, Scope, Segment, Stage, Values,
};

/// The shape of one arm of the spectra that a recording is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmLayout {
    /// At least as many as any of the spectra has: behind its last one is nothing that has weight.
    pub pixels: usize,
    /// All spectra of a batch have one wavelength grid.
    pub shared_grid: bool,
    /// Number of diagonals of the spectra's resolution matrices; 0 where the model asks for none.
    pub diagonals: usize,
    /// The pixels are the template's own, at rest: nothing is to be resampled.
    pub is_template: bool,
    /// The recording has one continuum basis per spectrum.
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
    /// The spectra's own, and its diagonals.
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
        name: &dyn Fn(&str) -> String,
        [pixels, cleaned]: [usize; 2],
        grid: Scope,
        model: BufferId,
    ) -> ArmBuffers {
        ArmBuffers {
            data: recording.buffer(name("data"), Scope::Spectrum, Kind::Float, pixels + cleaned),
            weight: recording.buffer(name("weight"), Scope::Spectrum, Kind::Float, pixels),
            index: recording.buffer(name("index"), grid, Kind::Index, pixels),
            fraction: recording.buffer(name("fraction"), grid, Kind::Float, pixels),
            edges: None,
            basis: None,
            resolution: None,
            model,
            solution: None,
        }
    }
}

/// Rows of a template, or at a spectrum's pixels.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub buffer: BufferId,
    pub rows: usize,
    /// Stride.
    pub columns: usize,
}

/// Records the stages that turn an arm's template into the sums of the fit: broadening, sampling, resolution,
/// continuum, normal equations.
pub fn record_spectrum(
    recording: &mut Recording,
    model: &SpectralModel,
    arm: &ModelArm,
    layout: ArmLayout,
    template: Rows,
) -> ArmBuffers {
    let segments: Vec<Segment> = arm
        .grid
        .segments
        .iter()
        .map(|s| Segment {
            start: s.start,
            end: s.end,
            inverse_step: 1.0 / s.step,
        })
        .collect();
    let mut template = record_broadening(recording, model, arm, &segments, template);
    let pixels = padded(layout.pixels);
    let name = |what: &str| format!("{}.{what}", arm.name);
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
    let mut buffers =
        ArmBuffers::record(recording, &name, [pixels, cleaned], grid, template.buffer);
    if arm.pixels == Some(Pixels::Integrate) {
        buffers.edges = Some(recording.buffer(name("edges"), grid, Kind::Float, 2 * pixels));
    }
    if !layout.is_template {
        template = record_sampling(recording, model, arm, segments, template, pixels, buffers);
    }
    buffers.model = template.buffer;
    if layout.diagonals > 0 {
        let length = layout.diagonals * pixels;
        let matrix = recording.buffer(name("resolution"), Scope::Spectrum, Kind::Float, length);
        buffers.resolution = Some((layout.diagonals, matrix));
        buffers.model =
            record_matrix(recording, name("model"), template, layout.diagonals, matrix).buffer;
    }
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
    mut template: Rows,
) -> Rows {
    let name = |what: &str| format!("{}.{what}", arm.name);
    let Rows { columns, .. } = template;
    if let Some(rotation) = model.vsini {
        let Rows {
            buffer: input,
            rows,
            ..
        } = template;
        let derivatives = !recording.values_only;
        let segments = segments.to_vec();
        let stage = Broaden {
            input,
            output: input,
            rows,
            columns,
            segments,
            rotation,
            derivatives,
        };
        let rows = stage.output_rows();
        let output = recording.buffer(
            name("broadened"),
            Scope::Member,
            Kind::Float,
            rows * columns,
        );
        recording
            .stages
            .push(Stage::Broaden(Broaden { output, ..stage }));
        template = Rows {
            buffer: output,
            rows,
            columns,
        };
    }
    if let Some(spread) = Spread::new(arm, columns) {
        let matrix = recording.constant(name("spread"), Values::F64(spread.values.into()));
        template = record_matrix(
            recording,
            name("spread rows"),
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
    mut template: Rows,
    pixels: usize,
    buffers: ArmBuffers,
) -> Rows {
    let name = |what: &str| format!("{}.{what}", arm.name);
    let Rows { rows, columns, .. } = template;
    if arm.interpolation == Interpolation::Cubic {
        let (input, segments) = (template.buffer, segments.clone());
        let output = recording.buffer(
            name("coefficients"),
            Scope::Member,
            Kind::Float,
            rows * columns,
        );
        recording.stages.push(Stage::Prefilter(Prefilter {
            input,
            output,
            rows,
            columns,
            segments,
        }));
        template.buffer = output;
    }
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
    let output = recording.buffer(name("observed"), Scope::Member, Kind::Float, rows * pixels);
    let centres = Resample { output, ..resample };
    recording.stages.push(match buffers.edges {
        Some(edges) => Stage::Integrate(Integrate { centres, edges }),
        None => Stage::Resample(centres),
    });
    Rows {
        buffer: output,
        rows,
        columns: pixels,
    }
}

/// Records the product of a banded matrix of so many diagonals with each row; returns the rows of the result.
fn record_matrix(
    recording: &mut Recording,
    name: String,
    input: Rows,
    diagonals: usize,
    matrix: BufferId,
) -> Rows {
    let Rows {
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
    Rows {
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
    let name = |what: &str| format!("{}.{what}", arm.name);
    let ArmBuffers {
        data,
        weight,
        model: rows,
        ..
    } = *buffers;
    let (terms, loss) = (arm.continuum.terms, model.loss());
    if terms > 0 {
        // behind the solution a robust loss needs L⁻¹ Sᵀψ
        let projected = if loss.is_some() { terms } else { 0 };
        let basis = Basis {
            terms,
            basis: recording.buffer(name("basis"), grid, Kind::Float, terms * pixels),
            transform: recording.buffer(
                name("transform"),
                Scope::Spectrum,
                Kind::Float,
                terms * terms,
            ),
        };
        let solution = recording.buffer(
            name("solution"),
            Scope::Member,
            Kind::Float,
            terms * (1 + terms) + projected,
        );
        let stage = Continuum {
            model: rows,
            pixels,
            data,
            weight,
            basis,
            solution,
            loss,
        };
        recording.stages.push(Stage::Continuum(stage));
        (buffers.basis, buffers.solution) = (Some(basis), Some(solution));
    }
    recording.stages.push(Stage::Normal(Normal {
        model: rows,
        pixels,
        columns: if recording.values_only {
            Vec::new()
        } else {
            model.columns(arm)
        },
        data,
        weight,
        continuum: buffers.basis.zip(buffers.solution),
        loss,
    }));
}
