//! Mixed precision ends where f32 does: the synb spectra, with and without rotation, in units of their errors.

use popfit::{Device, FitTable, NelderMead, Precision, Spectra, SpectralModel};
use popfit_testing::fits::{fitter, gpu, offset, share, sound};
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

/// Fails unless parameters differ by less than `max_offset` of their errors, and objectives by less than 0.02 or, of
/// large ones, 3e-6, which rounding leaves of a sum in f32.
fn compare_precisions(what: &str, max_offset: f64, [full, mixed]: &[FitTable; 2]) {
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
        offsets.iter().all(|s| *s < max_offset),
        "{}",
        share(&offsets, |s| *s < max_offset)
    );
    assert!(pairs().all(|(a, b)| (b.objective - a.objective).abs() < 0.02 + 3e-6 * a.chi2));
    assert!(pairs().all(|(a, b)| a.status == b.status && a.flags == b.flags));
    // The sums of f16 products are not the same to the bit.
    assert!(pairs().any(|(a, b)| a.objective != b.objective));
}

#[test]
fn mixed_precision_agrees_with_f32_on_the_cpu() {
    let device = Device::cpu();
    let spectra = spectra("fixed_vsini");
    compare_precisions(
        "synb, cpu",
        0.02,
        &fit_in_both_precisions(&synb_model(), &device, &spectra),
    );
    compare_precisions(
        "vsini free, cpu",
        0.02,
        &fit_in_both_precisions(&rotating_model(), &device, &self::spectra("free_vsini")),
    );
}

/// Where the model misses the data by many errors, derivatives with an error of 2⁻¹¹ move the point at which the
/// gradient vanishes the most.
#[test]
fn mixed_precision_agrees_with_f32_where_chi2_is_large() {
    let mut spectra = spectra("fixed_vsini");
    for ivar in spectra.arms[0].ivar.to_mut() {
        *ivar *= 18.0;
    }
    compare_precisions(
        "chi2/dof of 18, cpu",
        0.03,
        &fit_in_both_precisions(&synb_model(), &Device::cpu(), &spectra),
    );
}

#[test]
fn mixed_precision_agrees_with_f32_on_the_gpu() {
    let Some(device) = gpu() else { return };
    compare_precisions(
        "synb, gpu",
        0.02,
        &fit_in_both_precisions(&synb_model(), &device, &spectra("fixed_vsini")),
    );
}

#[test]
fn mixed_precision_agrees_with_f32_by_nelder_mead() {
    let subset = spectra("fixed_vsini").slice(0..6);
    let [full, mixed] = [Precision::F32, Precision::Mixed].map(|precision| {
        fitter(synb_model(), &Device::cpu())
            .solver(NelderMead::default())
            .precision(precision)
            .fit(&subset)
            .unwrap()
    });
    compare_precisions("Nelder-Mead, cpu", 0.02, &[full, mixed]);
}
