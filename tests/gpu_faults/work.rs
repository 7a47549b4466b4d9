//! Fits during which something goes wrong.

use popfit::low_level::gpu::GpuDevice;
use popfit::{
    CurveFit, CurveFitter, CurveModel, Curves, Device, FitRow, Formula, LevenbergMarquardt,
    NelderMead, Result, Solver, Spectra, SpectralFitter, VelocityScan,
};

use popfit_testing::fits::{bits, fitter};
use popfit_testing::required::{Need, skip};
use popfit_testing::tiny::{self, linear, spectra, wave};

pub const SPECTRA: usize = 12;

/// The best adapter. Without one a test is skipped, or fails where a GPU is [required](skip).
pub fn gpu() -> Option<GpuDevice> {
    GpuDevice::best()
        .map_err(|error| skip(Need::Gpu, error))
        .ok()
}

pub fn setup(device: &Device, count: usize) -> (SpectralFitter, Spectra<'static>) {
    let emulator = linear(&["a", "b"], wave);
    let labels: Vec<f64> = (0..2 * count)
        .map(|k| 5.0 * (k as f64 * 0.7).sin())
        .collect();
    let all = spectra(&emulator, &labels, 0.01);
    (fitter(tiny::model(emulator, 0.5), device), all)
}

/// Status and texts of a fit, and its numbers.
#[derive(Debug)]
pub struct Fit(pub String, pub Vec<f64>);

/// Bit by bit.
pub fn same(a: &[Fit], b: &[Fit]) -> bool {
    let one = |(a, b): (&Fit, &Fit)| {
        let bits = |fit: &Fit| fit.1.iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
        a.0 == b.0 && bits(a) == bits(b)
    };
    a.len() == b.len() && a.iter().zip(b).all(one)
}

/// Fits on a device, with or without the CPU's help.
pub type Work = fn(&Device, bool) -> Result<Vec<Fit>>;

fn fit_of(row: &FitRow) -> Fit {
    let (status, text, numbers, counts) = bits(row);
    let posterior = row
        .posterior
        .map(|p| [p.velocity, p.error, p.skewness, p.kurtosis]);
    let numbers = numbers
        .into_iter()
        .map(f64::from_bits)
        .chain(posterior.into_iter().flatten())
        .collect();
    Fit(format!("{status:?} {text} {counts:?}"), numbers)
}

fn fits(fitter: SpectralFitter, fallback: bool, all: &Spectra) -> Result<Vec<Fit>> {
    Ok(fitter
        .cpu_fallback(fallback)
        .fit(all)?
        .to_rows()
        .into_iter()
        .map(|row| fit_of(&row))
        .collect())
}

pub fn lm(device: &Device, fallback: bool) -> Result<Vec<Fit>> {
    let (fitter, all) = setup(device, SPECTRA);
    fits(fitter, fallback, &all)
}

/// Fits in a small population: spectra enter where others have left.
pub fn refilled(device: &Device, fallback: bool) -> Result<Vec<Fit>> {
    let (fitter, all) = setup(device, 160);
    fits(fitter.max_memory(120_000), fallback, &all)
}

pub fn simplex(device: &Device, fallback: bool) -> Result<Vec<Fit>> {
    let (fitter, all) = setup(device, 3);
    fits(
        SpectralFitter::new(fitter.model().clone(), device.clone()).solver(NelderMead::default()),
        fallback,
        &all,
    )
}

pub fn both(device: &Device, fallback: bool) -> Result<Vec<Fit>> {
    let (fitter, all) = setup(device, 3);
    let solver = Solver::LevenbergMarquardtThenNelderMead(
        LevenbergMarquardt::default(),
        NelderMead::default(),
    );
    fits(
        SpectralFitter::new(fitter.model().clone(), device.clone()).solver(solver),
        fallback,
        &all,
    )
}

/// Velocities are scanned, too.
fn scans(device: &Device, fallback: bool, scan: VelocityScan) -> Result<Vec<Fit>> {
    let emulator = linear(&["a"], wave);
    let all = spectra(&emulator, &[1.0, -2.0, 3.0, 4.0], 0.01);
    let model = tiny::builder(emulator, 0.5)
        .velocity(-20.0..=20.0)
        .build()
        .unwrap();
    fits(
        fitter(model, device).starts(1).velocity_scan(scan),
        fallback,
        &all,
    )
}

pub fn scan(device: &Device, fallback: bool) -> Result<Vec<Fit>> {
    scans(device, fallback, VelocityScan::Fixed)
}

pub fn refitted_scan(device: &Device, fallback: bool) -> Result<Vec<Fit>> {
    scans(device, fallback, VelocityScan::Refitted)
}

/// Decays of different rates.
fn decays() -> (Formula, Curves<'static>) {
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

fn solved_curves(device: &Device, fallback: bool, solver: impl Into<Solver>) -> Result<Vec<Fit>> {
    let (formula, curves) = decays();
    let fits = CurveFitter::new(formula, device.clone())
        .solver(solver)
        .cpu_fallback(fallback)
        .fit(&curves)?;
    Ok(fits.iter().map(of_curve).collect())
}

fn of_curve(fit: &CurveFit) -> Fit {
    Fit(
        format!("{:?}", fit.status),
        [&fit.parameters[..], &fit.errors, &[fit.chi2]].concat(),
    )
}

pub fn curves(device: &Device, fallback: bool) -> Result<Vec<Fit>> {
    solved_curves(device, fallback, CurveFitter::LEVENBERG_MARQUARDT)
}

/// Fits curves and leaves them as the device ends them.
pub fn unpolished(device: &Device, fallback: bool) -> Result<Vec<Fit>> {
    let (formula, curves) = decays();
    let fitter = CurveFitter::new(formula, device.clone())
        .polish(false)
        .cpu_fallback(fallback);
    Ok(fitter.fit(&curves)?.iter().map(of_curve).collect())
}

pub fn simplices(device: &Device, fallback: bool) -> Result<Vec<Fit>> {
    solved_curves(device, fallback, CurveFitter::NELDER_MEAD)
}

pub fn columns(device: &Device, fallback: bool) -> Result<Vec<Fit>> {
    let (formula, curves) = decays();
    let fits = CurveFitter::new(formula, device.clone())
        .cpu_fallback(fallback)
        .fit_columns(&curves)?;
    Ok(vec![Fit(
        format!("{:?}", fits.status),
        [fits.parameters, fits.errors, fits.chi2].concat(),
    )])
}

/// Nobody but the device knows the model.
pub fn wgsl_curves(device: &Device, simplex: bool) -> Result<Vec<Fit>> {
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
        .fit(&decays().1)?
        .iter()
        .map(of_curve)
        .collect())
}
