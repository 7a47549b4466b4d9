//! `popfit-bench kernels`: the kernels that an NVIDIA card gets, for compilers that tell what a card would make of them
//! (`tools/kernels`). No GPU is needed.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use popfit::low_level::Task;
use popfit::low_level::gpu::{KernelSource, kernel_sources, small_fit_source};
use popfit::low_level::recording::{Recording, Stage};
use popfit::low_level::solver::Tolerances;
use popfit::low_level::solver::small::{LaneModel, SmallModel, SmallProblem, SumRounding};
use popfit::spectra::{FilesReader, Selection, SpectraReader};
use popfit::{
    CurveFitter, Curves, Device, Estimator, Formula, LevenbergMarquardt, ModelFile, SpectralFitter,
};
use popfit_cli::{Failure, line};

/// Starts in flight: the batch of a card.
const CAPACITY: usize = 2048;
/// Small fits that are uploaded together.
const SMALL_CAPACITY: usize = 65_536;
/// Pixels of the Gauss function, and those along a side.
const POINTS: usize = SIDE * SIDE;
const SIDE: usize = 5;
/// Its parameters: amplitude, centre, width and offset.
const PARAMETERS: usize = 5;
/// What bounds the rounding of its values, as the built-in formula has it.
const ROUNDING: SumRounding = SumRounding {
    of_exponent: 10.0,
    others: 12.0,
    exponents: &[(3, 0.5)],
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Folder to which NAME-NUMBER-KERNEL.wgsl is written for each kernel
    folder: PathBuf,
    /// Name of the model and of its kernels
    name: String,
    /// Model file; without, a curve: Gauss 2D
    #[arg(requires = "spectra")]
    model: Option<PathBuf>,
    /// File of spectra, of which the first gives the grids
    spectra: Option<PathBuf>,
}

/// Writes the kernels of a model.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments {
        folder,
        name,
        model,
        spectra,
    } = arguments;
    fs::create_dir_all(folder)
        .map_err(|error| Failure::of_the_run(format!("{}: {error}", folder.display())))?;
    let task = match (model, spectra) {
        (Some(model), Some(spectra)) => of_spectrum(model, spectra)?,
        _ => of_curve()?,
    };
    let recording = &task.linearise.recording;
    let mut kernels = kernel_sources(recording, &LevenbergMarquardt::default(), CAPACITY)?;
    kernels.extend(small_fits(recording)?);
    // arms of equal sizes have the same kernels
    let mut seen = HashSet::new();
    kernels.retain(|kernel| seen.insert(kernel.wgsl.clone()));
    for (number, KernelSource { stem, wgsl, .. }) in kernels.iter().enumerate() {
        let path = folder.join(format!("{name}-{number:02}-{stem}.wgsl"));
        fs::write(&path, wgsl)
            .map_err(|error| Failure::of_the_run(format!("{}: {error}", path.display())))?;
    }
    line(format_args!("{} kernels of {name}", kernels.len()));
    Ok(())
}

/// Returns the first spectrum of a file as a task of a model.
pub fn of_spectrum(model: &Path, spectra: &Path) -> Result<Task, Failure> {
    let model = ModelFile::open(model)?.build()?;
    let first =
        FilesReader::open(&[spectra.to_path_buf()], &Selection::default())?.next_batch(1)?;
    let first =
        first.ok_or_else(|| Failure::usage(format!("{}: no spectra", spectra.display())))?;
    first_of(Task::of_spectra(
        &SpectralFitter::new(model, Device::cpu()),
        &first,
    )?)
}

/// Returns a Gauss function on 5 × 5 pixels as a task.
fn of_curve() -> Result<Task, Failure> {
    let coordinate = |pick: fn(usize) -> usize| (0..POINTS).map(move |j| pick(j) as f64);
    let x: Vec<f64> = coordinate(|j| j % SIDE)
        .chain(coordinate(|j| j / SIDE))
        .collect();
    let curve = Curves::on_common_grid(x, vec![1.0; POINTS], vec![1.0; PARAMETERS]);
    first_of(Task::of_curves(
        &CurveFitter::new(Formula::builtin("gauss2d")?, Device::cpu()),
        &curve,
    )?)
}

/// Returns the kernel of small fits of that Gauss function.
fn small_fits(recording: &Recording) -> Result<Option<KernelSource>, Failure> {
    let wgsl = recording.stages.iter().find_map(|stage| match stage {
        Stage::Custom(custom) => Some(custom.wgsl.clone()),
        _ => None,
    });
    let Some(wgsl) = wgsl else { return Ok(None) };
    let no_rows: LaneModel<f32> = Arc::new(|_| ());
    let problem = SmallProblem {
        capacity: SMALL_CAPACITY,
        parameters: PARAMETERS,
        predictors: 2,
        points: POINTS,
        model: SmallModel::Single(no_rows, None),
        wgsl,
        ends_in_ones: true,
        settings: LevenbergMarquardt::default(),
        budget: 1000,
        is_pointwise: true,
        is_sandwich: false,
        tolerances: Tolerances::with_reduction(
            &LevenbergMarquardt::default(),
            1e-6,
            f64::INFINITY,
            1e-6,
        ),
        estimator: Estimator::LeastSquares,
        priors: Vec::new(),
        rounding: Some(ROUNDING),
        correlations: false,
    };
    Ok(Some(small_fit_source(&problem)?))
}

/// Returns the only task of a list.
fn first_of(tasks: Vec<Task>) -> Result<Task, Failure> {
    tasks
        .into_iter()
        .next()
        .ok_or_else(|| Failure::usage("no task"))
}
