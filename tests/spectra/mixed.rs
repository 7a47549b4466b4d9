//! Mixed precision ends where f32 does: the synb spectra, with and without rotation, in units of their errors.

use popfit::{
    Device, FitTable, LevenbergMarquardt, NelderMead, Precision, Spectra, SpectralFitter,
    SpectralModel,
};
use popfit_testing::fits::{devices, fitter, gpu, offset, share, sound};
use popfit_testing::synb::spectra;
use popfit_testing::{median, rotating_model, synb_model};

/// Returns the fits in f32 and in mixed precision.
fn fit_in_both_precisions(
    model: &SpectralModel,
    device: &Device,
    spectra: &Spectra,
) -> [FitTable; 2] {
    [Precision::F32, Precision::Mixed].map(|precision| {
        let table = fitter(model.clone(), device)
            .precision(precision)
            .fit(spectra)
            .unwrap();
        sound(&table);
        assert!(
            table.status().iter().all(|status| status.is_success()),
            "{precision:?}: {:?}",
            table
        );
        table
    })
}

fn compare_precisions(what: &str, [full, mixed]: &[FitTable; 2]) {
    let pairs = || full.to_rows().into_iter().zip(mixed.to_rows());
    // A parameter at a bound has no error. It is at the bound in both.
    let errors = |errors: &[f64]| {
        errors
            .iter()
            .map(|e| if *e > 0.0 { *e } else { 1e-6 })
            .collect::<Vec<_>>()
    };
    let offsets: Vec<f64> = pairs()
        .map(|(a, b)| offset(&b, &a.parameters, &errors(&a.errors)))
        .collect();
    let gaps: Vec<f64> = pairs().map(|(a, b)| b.objective - a.objective).collect();
    let mean_evaluations = |table: &FitTable| {
        table
            .to_rows()
            .into_iter()
            .map(|row| f64::from(row.evaluations))
            .sum::<f64>()
            / table.len() as f64
    };
    println!(
        "{what}: {} spectra, moved by {:.5} sigma in the median, {:.4} at most; objectives by {:.5} at most; {:.2} \
         linearisations in f32, {:.2} mixed",
        full.len(),
        median(offsets.clone()),
        offsets.iter().copied().fold(0.0, f64::max),
        gaps.iter().map(|gap| gap.abs()).fold(0.0, f64::max),
        mean_evaluations(full),
        mean_evaluations(mixed),
    );
    assert!(
        offsets.iter().all(|s| *s < 0.02),
        "{}",
        share(&offsets, |s| *s < 0.02)
    );
    assert!(gaps.iter().all(|gap| gap.abs() < 0.02));
    assert!(pairs().all(|(a, b)| a.status == b.status && a.flags == b.flags));
    // The first rounds were other ones.
    assert!(pairs().any(|(a, b)| a.evaluations != b.evaluations));
}

#[test]
fn mixed_precision_agrees_with_f32_on_the_cpu() {
    let device = Device::cpu();
    compare_precisions(
        "synb, cpu",
        &fit_in_both_precisions(&synb_model(), &device, &spectra("fixed_vsini")),
    );
    compare_precisions(
        "vsini free, cpu",
        &fit_in_both_precisions(&rotating_model(), &device, &spectra("free_vsini")),
    );
}

#[test]
fn mixed_precision_agrees_with_f32_on_the_gpu() {
    let Some(device) = gpu() else { return };
    compare_precisions(
        "synb, gpu",
        &fit_in_both_precisions(&synb_model(), &device, &spectra("fixed_vsini")),
    );
}

#[test]
fn few_rounds_are_all_in_f32() {
    let subset = spectra("fixed_vsini").slice(0..6);
    for device in devices() {
        for max_rounds in [1, 3, 47] {
            let rows = |precision| {
                let settings = LevenbergMarquardt::default().max_rounds(max_rounds);
                let fitter = SpectralFitter::new(synb_model(), device.clone()).solver(settings);
                fitter.precision(precision).fit(&subset).unwrap().to_rows()
            };
            for (full, mixed) in rows(Precision::F32).iter().zip(&rows(Precision::Mixed)) {
                popfit_testing::fits::same_bits(full, mixed, "few rounds");
            }
        }
    }
}

#[test]
fn mixed_precision_is_refused_for_nelder_mead() {
    let fitter = SpectralFitter::new(synb_model(), Device::cpu()).solver(NelderMead::default());
    let refused = fitter
        .precision(Precision::Mixed)
        .fit(&spectra("fixed_vsini"));
    let refused = refused.unwrap_err();
    assert!(
        refused.to_string().contains("Levenberg") && refused.argument().is_some(),
        "{refused}"
    );
}
