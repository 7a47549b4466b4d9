//! Errors beside a parameter that its bound holds back, although the truth lies inside.

use popfit::{Device, FitTable, LabelSettings, SpectralFitter};

use popfit_testing::demo_builder;
use popfit_testing::random::Random;
use popfit_testing::refits::{demo_spectrum, draw_spectra};

/// Pulls of the parameter that is most correlated with the one at its bound, about the truth.
pub struct BesideBound {
    /// Refits that ended at the bound.
    pub refits: usize,
    /// Root mean square of (found − true) / error, with the errors that hold at the bound, and with the bound released.
    pub conditional: f64,
    pub released: f64,
    /// The correlation of the two in an unbounded fit.
    pub correlation: f64,
}

/// Refits one spectrum of the demo `count` times with a bound one error above the truth of a label, and `count` times
/// with a bound one error below. An estimate that would go beyond the bound stops there, one error from the truth. The
/// correlated parameter is then off by the correlation times its own error, with the sign of the side. Its mean square
/// is that of an unbounded fit.
pub fn refit_beside_bound(count: usize, seed: u64) -> BesideBound {
    let fitter = SpectralFitter::new(demo_builder("").build().unwrap(), Device::cpu());
    let (truth, arm) = demo_spectrum(&fitter);
    let names = fitter.parameters();
    let (bounded_label, correlated, correlation) =
        find_most_correlated(&truth.correlations, names.len());
    let mut random = Random(seed);
    let mut refits = 0;
    let mut conditional = 0.0;
    let mut released = 0.0;
    for side in [-1.0, 1.0] {
        let bound = truth.parameters[bounded_label] + side * truth.errors[bounded_label];
        let (lower, upper) = fitter.model().bounds()[bounded_label];
        let bounds = if side < 0.0 {
            (bound, upper)
        } else {
            (lower, bound)
        };
        let settings = LabelSettings::default().bounds(bounds.0..=bounds.1);
        let model = demo_builder("")
            .label(&names[bounded_label], settings)
            .build()
            .unwrap();
        let bounded = SpectralFitter::new(model, Device::cpu()).released_errors(true);
        let table = bounded
            .fit_from(
                &draw_spectra(&arm, count, &mut random),
                &truth.parameters.repeat(count),
            )
            .unwrap();
        check_unbounded(&table);
        for row in table
            .to_rows()
            .into_iter()
            .filter(|row| row.at_bound == 1 << bounded_label && row.status.is_success())
        {
            let deviation = row.parameters[correlated] - truth.parameters[correlated];
            refits += 1;
            conditional += (deviation / row.errors[correlated]).powi(2);
            released += (deviation / row.released_errors[correlated]).powi(2);
        }
    }
    let root_mean = |sum: f64| (sum / f64::from(refits)).sqrt();
    BesideBound {
        refits: refits as usize,
        conditional: root_mean(conditional),
        released: root_mean(released),
        correlation,
    }
}

/// Returns the pair of labels with the largest positive or negative correlation, and that correlation. The velocity,
/// the first parameter, is left out.
fn find_most_correlated(correlations: &[f64], count: usize) -> (usize, usize, f64) {
    let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
    let labels = pairs.zip(correlations).filter(|((a, _), _)| *a > 0);
    let ((a, b), correlation) = labels
        .max_by(|x, y| x.1.abs().total_cmp(&y.1.abs()))
        .unwrap();
    (a, b, *correlation)
}

/// Checks that released errors are the usual errors if no bound is active.
fn check_unbounded(table: &FitTable) {
    for row in table.to_rows().into_iter().filter(|row| row.at_bound == 0) {
        assert_eq!(row.errors, row.released_errors);
    }
}
