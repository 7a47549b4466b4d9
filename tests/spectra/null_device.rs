//! The device that computes nothing, on which the host alone is measured: fits end at their first guess.

use popfit::low_level::NullDevice;
use popfit::{CurveColumns, CurveFitter, Curves, Device, Formula, SpectralFitter, Status};
use popfit_testing::tiny::{linear, model, spectra, wave};

#[test]
fn spectra_end_at_their_first_guess() {
    let emulator = linear(&["a", "b"], wave);
    let spectra = spectra(&emulator, &[0.3, -0.5], 0.01);
    let model = model(emulator, 0.0);
    let guess = SpectralFitter::new(model.clone(), Device::cpu())
        .guess(&spectra)
        .unwrap();
    let rows = SpectralFitter::new(model, Device::from(NullDevice))
        .fit(&spectra)
        .unwrap();
    assert_eq!(rows.len(), guess.len());
    for (row, guess) in rows.to_rows().iter().zip(&guess) {
        assert_eq!(row.status, Status::Ftol);
        assert!(
            guess
                .starts
                .iter()
                .any(|start| start.parameters == row.parameters),
            "{guess:?}"
        );
    }
    assert!(rows.rounds().iter().all(|rounds| *rounds == 1));
}

#[test]
fn curves_end_at_their_starts() {
    let x: Vec<f64> = (0..10).map(f64::from).collect();
    let y: Vec<f64> = (0..1000).map(|k| f64::from(k % 10)).collect();
    let starts: Vec<f64> = (0..200).map(|k| 1.0 + f64::from(k)).collect();
    let fitter = CurveFitter::new(Formula::parse("a + b*x").unwrap(), Device::from(NullDevice))
        .polish(false);
    let columns: CurveColumns = fitter
        .fit_columns(&Curves::on_common_grid(x, y, starts.clone()))
        .unwrap();
    assert_eq!(columns.parameters, starts);
    assert!(
        columns.status.iter().all(|status| *status == Status::Ftol)
            && columns.rounds.iter().all(|n| *n == 1)
    );
}
