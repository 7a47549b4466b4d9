//! Fits on a device, in which faults are injected.

use popfit::low_level::gpu::GpuDevice;
use popfit::{
    CurveFit, CurveFitter, CurveModel, Curves, Device, FitRow, Formula, LevenbergMarquardt,
    NelderMead, Result, Solver, Spectra, SpectralFitter, VelocityScan,
};

use popfit_testing::fits::{bits, fitter};
use popfit_testing::required::{Need, skip};
use popfit_testing::tiny::{self, linear, spectra, wave};

/// Number of spectra of most fits.
pub const SPECTRA: usize = 12;

/// Opens the best adapter. Without one a test is skipped, or fails where a GPU is [required](skip).
pub fn open_gpu() -> Option<GpuDevice> {
    GpuDevice::best()
        .map_err(|error| skip(Need::Gpu, error))
        .ok()
}

/// Makes a fitter on a device, and spectra for it.
pub fn make_fitter_and_spectra(
    device: &Device,
    count: usize,
) -> (SpectralFitter, Spectra<'static>) {
    let emulator = linear(&["a", "b"], wave);
    let labels: Vec<f64> = (0..2 * count)
        .map(|k| 5.0 * (k as f64 * 0.7).sin())
        .collect();
    let spectra = spectra(&emulator, &labels, 0.01);
    (fitter(tiny::model(emulator, 0.5), device), spectra)
}

/// The status and texts of a fit, and its numbers.
#[derive(Debug)]
pub struct FitRecord(pub String, pub Vec<f64>);

/// Returns whether fits agree bit by bit.
pub fn are_identical(a: &[FitRecord], b: &[FitRecord]) -> bool {
    let bits = |fit: &FitRecord| fit.1.iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.0 == b.0 && bits(a) == bits(b))
}

/// Function that fits on a device, with or without a fallback to the CPU.
pub type FitFunction = fn(&Device, bool) -> Result<Vec<FitRecord>>;

fn record_of_row(row: &FitRow) -> FitRecord {
    let (status, text, numbers, counts) = bits(row);
    let posterior = row
        .posterior
        .map(|p| [p.velocity, p.error, p.skewness, p.kurtosis]);
    let numbers = numbers
        .into_iter()
        .map(f64::from_bits)
        .chain(posterior.into_iter().flatten())
        .collect();
    FitRecord(format!("{status:?} {text} {counts:?}"), numbers)
}

/// Fits the spectra, and returns a record of each.
fn fit_all(fitter: SpectralFitter, fallback: bool, spectra: &Spectra) -> Result<Vec<FitRecord>> {
    Ok(fitter
        .cpu_fallback(fallback)
        .fit(spectra)?
        .to_rows()
        .into_iter()
        .map(|row| record_of_row(&row))
        .collect())
}

pub fn fit_spectra(device: &Device, fallback: bool) -> Result<Vec<FitRecord>> {
    let (fitter, spectra) = make_fitter_and_spectra(device, SPECTRA);
    fit_all(fitter, fallback, &spectra)
}

/// Fits in a small population, in which spectra enter where others have left.
pub fn fit_refilled_population(device: &Device, fallback: bool) -> Result<Vec<FitRecord>> {
    let (fitter, spectra) = make_fitter_and_spectra(device, 160);
    fit_all(fitter.max_memory(120_000), fallback, &spectra)
}

pub fn fit_spectra_by_simplices(device: &Device, fallback: bool) -> Result<Vec<FitRecord>> {
    let (fitter, spectra) = make_fitter_and_spectra(device, 3);
    fit_all(
        SpectralFitter::new(fitter.model().clone(), device.clone()).solver(NelderMead::default()),
        fallback,
        &spectra,
    )
}

pub fn fit_spectra_by_both_solvers(device: &Device, fallback: bool) -> Result<Vec<FitRecord>> {
    let (fitter, spectra) = make_fitter_and_spectra(device, 3);
    let solver = Solver::LevenbergMarquardtThenNelderMead(
        LevenbergMarquardt::default(),
        NelderMead::default(),
    );
    fit_all(
        SpectralFitter::new(fitter.model().clone(), device.clone()).solver(solver),
        fallback,
        &spectra,
    )
}

/// Fits spectra with a scan of their velocities.
fn scan_velocities_with(
    device: &Device,
    fallback: bool,
    scan: VelocityScan,
) -> Result<Vec<FitRecord>> {
    let emulator = linear(&["a"], wave);
    let spectra = spectra(&emulator, &[1.0, -2.0, 3.0, 4.0], 0.01);
    let model = tiny::builder(emulator, 0.5)
        .velocity(-20.0..=20.0)
        .build()
        .unwrap();
    fit_all(
        fitter(model, device).starts(1).velocity_scan(scan),
        fallback,
        &spectra,
    )
}

pub fn scan_velocities(device: &Device, fallback: bool) -> Result<Vec<FitRecord>> {
    scan_velocities_with(device, fallback, VelocityScan::Fixed)
}

pub fn scan_velocities_refitted(device: &Device, fallback: bool) -> Result<Vec<FitRecord>> {
    scan_velocities_with(device, fallback, VelocityScan::Refitted)
}

/// Makes a formula of a decay, and curves of different rates.
fn make_decays() -> (Formula, Curves<'static>) {
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    let noise = |j: usize, k: usize| 0.01 * ((j * 7 + k) as f64 * 12.9898).sin();
    let curve = |k: usize| {
        (0..x.len())
            .map(move |j| 3.0 * (-(0.5 + 0.1 * k as f64) * 0.2 * j as f64).exp() + noise(j, k))
    };
    let y: Vec<f64> = (0..9).flat_map(curve).collect();
    (
        Formula::parse("a*exp(-k*x)").unwrap(),
        Curves::on_common_grid(x, y, [1.0, 0.7].repeat(9)),
    )
}

fn fit_curves_with(
    device: &Device,
    fallback: bool,
    solver: impl Into<Solver>,
) -> Result<Vec<FitRecord>> {
    let (formula, curves) = make_decays();
    let fits = CurveFitter::new(formula, device.clone())
        .solver(solver)
        .cpu_fallback(fallback)
        .fit(&curves)?;
    Ok(fits.iter().map(record_of_curve).collect())
}

fn record_of_curve(fit: &CurveFit) -> FitRecord {
    FitRecord(
        format!("{:?}", fit.status),
        [&fit.parameters[..], &fit.errors, &[fit.chi2]].concat(),
    )
}

pub fn fit_curves(device: &Device, fallback: bool) -> Result<Vec<FitRecord>> {
    fit_curves_with(device, fallback, CurveFitter::LEVENBERG_MARQUARDT)
}

/// Fits curves without the polish, so that they stay as the device ends them.
pub fn fit_curves_unpolished(device: &Device, fallback: bool) -> Result<Vec<FitRecord>> {
    let (formula, curves) = make_decays();
    let fitter = CurveFitter::new(formula, device.clone())
        .polish(false)
        .cpu_fallback(fallback);
    Ok(fitter.fit(&curves)?.iter().map(record_of_curve).collect())
}

pub fn fit_curves_by_simplices(device: &Device, fallback: bool) -> Result<Vec<FitRecord>> {
    fit_curves_with(device, fallback, CurveFitter::NELDER_MEAD)
}

pub fn fit_columns_of_curves(device: &Device, fallback: bool) -> Result<Vec<FitRecord>> {
    let (formula, curves) = make_decays();
    let fits = CurveFitter::new(formula, device.clone())
        .cpu_fallback(fallback)
        .fit_columns(&curves)?;
    Ok(vec![FitRecord(
        format!("{:?}", fits.status),
        [fits.parameters, fits.errors, fits.chi2].concat(),
    )])
}

/// Fits curves of a model that has WGSL alone, which the host cannot evaluate.
pub fn fit_wgsl_curves(device: &Device, simplex: bool) -> Result<Vec<FitRecord>> {
    let text = "fn model(p: array<f32, 2>, x: f32) -> f32 { return p[0] * expf(-p[1] * x); }";
    let fitter = CurveFitter::new(CurveModel::wgsl(&["x"], &["a", "k"], text)?, device.clone());
    let nelder_mead = CurveFitter::NELDER_MEAD.max_restarts(2);
    let fitter = if simplex {
        fitter.solver(nelder_mead)
    } else {
        fitter
    };
    Ok(fitter
        .cpu_fallback(false)
        .fit(&make_decays().1)?
        .iter()
        .map(record_of_curve)
        .collect())
}
