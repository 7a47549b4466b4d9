//! Small fits on the CPU device: `cargo bench --bench curves`.
//!
//! `gauss2d`: Gpufit's GAUSS_2D, 25 points (5 × 5) and 5 parameters, 10⁶ fits; amplitude over noise 20, starts and
//! truths within a tenth of each other's middle. Prints how many lie within 0.001 of their errors of the fit refined in
//! f64, and what memory 10⁷ fits take that are streamed in parts.

#[path = "shared/images.rs"]
mod images;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use images::{PARAMETERS, POINTS, images};
use popfit::{CurveColumns, CurveFitter, Curves, Device};
use popfit_testing::memory::read_peak_mebibytes;

const FITS: usize = 1_000_000;

/// Returns the quality of the first few thousand fits: the share within 0.001 of the errors of the refined fit, and the
/// median distance.
fn quality(fitter: &CurveFitter, curves: &Curves, columns: &CurveColumns) -> (f64, f64) {
    let fits = fitter.fit(curves).expect("fits");
    let distance = |(k, fit): (usize, &popfit::CurveFit)| {
        let apart = |p: usize| {
            (fit.parameters[p] - columns.parameters[k * PARAMETERS + p]).abs() / fit.errors[p]
        };
        (0..PARAMETERS).map(apart).fold(0.0, f64::max)
    };
    let mut all: Vec<f64> = fits.iter().enumerate().map(distance).collect();
    all.sort_by(f64::total_cmp);
    (
        all.iter().filter(|d| **d <= 1e-3).count() as f64 / all.len() as f64,
        all[all.len() / 2],
    )
}

fn gauss2d(c: &mut Criterion) {
    let few = 4000;
    let (formula, x, y, starts) = images(FITS / 10);
    let fitter = CurveFitter::new(formula, Device::cpu());
    let part = Curves::on_common_grid(x.clone(), y.clone(), starts.clone());
    let mut columns = CurveColumns::default();
    for _ in 0..100 {
        fitter
            .fit_columns_into(&part, &mut columns)
            .expect("columns");
    }
    println!(
        "gauss2d: peak memory {:?} MiB after 10^7 fits in parts of {}",
        read_peak_mebibytes(),
        FITS / 10
    );
    let first = Curves::on_common_grid(
        x.clone(),
        y[..few * POINTS].to_vec(),
        starts[..few * PARAMETERS].to_vec(),
    );
    let (share, median) = quality(&fitter, &first, &columns);
    println!(
        "gauss2d: {:.2} % within 0.001 of the errors, median {median:.1e}",
        100.0 * share
    );
    let curves = Curves::on_common_grid(x, y.repeat(10), starts.repeat(10));
    let mut group = c.benchmark_group("gauss2d");
    group
        .sample_size(10)
        .throughput(Throughput::Elements(FITS as u64));
    group.bench_function("10^6 fits", |b| {
        b.iter(|| {
            fitter
                .fit_columns_into(&curves, &mut columns)
                .expect("columns")
        })
    });
    group.finish();
}

criterion_group!(benches, gauss2d);
criterion_main!(benches);
