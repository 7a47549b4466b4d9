//! Devices, batches of spectra and comparisons of rows.

use std::borrow::Borrow;

use super::required::{Need, found};
use popfit::spectra::{ArmSpectra, Column, ColumnValues, Ids, Wavelength};
use popfit::{
    Device, Error, FitRow, FitTable, LevenbergMarquardt, Spectra, SpectralFitter, SpectralModel,
    Status, Values,
};

/// The best adapter, software included. Without one a test is skipped, or fails where a GPU is
/// [required](super::required::skip).
pub fn gpu() -> Option<Device> {
    found(Need::Gpu, "gpu".parse::<Device>())
}

/// The CPU, and a GPU if there is one.
pub fn devices() -> Vec<Device> {
    std::iter::once(Device::cpu()).chain(gpu()).collect()
}

pub fn fitter(model: SpectralModel, device: &Device) -> SpectralFitter {
    SpectralFitter::new(model, device.clone())
}

/// Returns the smallest memory, to 1 %, with which the fitter runs.
pub fn least_memory(fitter: &SpectralFitter, one: &Spectra) -> u64 {
    let mut low = 1u64;
    let mut high = 1 << 34;
    while high - low > high / 100 {
        let middle = low.midpoint(high);
        match fitter.clone().max_memory(middle).fit(one) {
            Ok(_) => high = middle,
            Err(Error::OutOfMemory { .. }) => low = middle,
            Err(error) => panic!("{error}"),
        }
    }
    high
}

/// Returns a fitter that evaluates the model once, at the start.
pub fn evaluator(model: SpectralModel, device: &Device) -> SpectralFitter {
    let settings = LevenbergMarquardt::default().max_rounds(1);
    SpectralFitter::new(model, device.clone()).solver(settings)
}

/// The 128 spectra of `data/synb/fixed_vsini`.
pub fn synb_spectra() -> Spectra<'static> {
    super::synb::spectra("fixed_vsini")
}

/// The demo's 64 spectra.
pub fn demo_spectra() -> Spectra<'static> {
    Spectra::open(super::demo_file("spectra.npz")).unwrap()
}

/// Opens bytes as a file of spectra with this name, which is then cleared.
pub fn open_bytes(name: &str, bytes: &[u8]) -> popfit::Result<Spectra<'static>> {
    let folder = tempfile::tempdir().unwrap();
    let mut spectra = Spectra::open(super::file(folder.path(), name, bytes))?;
    spectra.file = "".into();
    Ok(spectra)
}

/// A column of numbers that comes with spectra.
pub fn column(name: &str, values: Vec<f64>) -> Column {
    Column {
        table: "".into(),
        name: name.into(),
        unit: "".into(),
        values: ColumnValues::F64(values),
    }
}

/// Returns some of the spectra, in this order; they keep their ids.
pub fn pick(spectra: &Spectra, order: &[usize]) -> Spectra<'static> {
    let pick_arm = |arm: &ArmSpectra| {
        let pick_rows = |values: &Values| {
            let values = values.to_double();
            Values::from(
                order
                    .iter()
                    .flat_map(|&n| &values[n * arm.pixels..][..arm.pixels])
                    .copied()
                    .collect::<Vec<_>>(),
            )
        };
        let wavelength = match &arm.wavelength {
            Wavelength::Shared(grid) => Wavelength::Shared(grid.clone()),
            Wavelength::Own(grids) => Wavelength::Own(pick_rows(grids)),
        };
        let mask_row = |n: usize| &arm.mask[n * arm.pixels..][..arm.pixels];
        let mask = (!arm.mask.is_empty())
            .then(|| order.iter().flat_map(|&n| mask_row(n)).copied().collect());
        ArmSpectra::new(
            arm.name.clone(),
            arm.pixels,
            wavelength,
            pick_rows(&arm.flux),
            pick_rows(&arm.ivar),
            mask,
        )
        .unwrap()
    };
    let Ids::Integer(ids) = &spectra.ids else {
        panic!("integer ids")
    };
    let ids = Ids::Integer(order.iter().map(|&n| ids[n]).collect());
    Spectra::from_arms(spectra.arms.iter().map(pick_arm).collect(), Some(ids)).unwrap()
}

/// Returns everything that a row has of the fit, bit by bit, without id, file and row.
pub fn bits(row: &FitRow) -> (Status, String, Vec<u64>, Vec<i64>) {
    let numbers = [row.chi2, row.objective].into_iter().chain(
        row.parameters
            .iter()
            .chain(&row.errors)
            .chain(&row.correlations)
            .copied(),
    );
    let counts = [
        row.rounds,
        row.evaluations,
        row.at_bound,
        row.flags.bits(),
        row.n_starts_agree,
    ]
    .map(i64::from);
    let counts = counts
        .into_iter()
        .chain([row.dof, row.start.map_or(-1, i64::from)])
        .collect();
    (
        row.status,
        row.status_text.clone(),
        numbers.map(f64::to_bits).collect(),
        counts,
    )
}

#[track_caller]
pub fn same_bits(a: impl Borrow<FitRow>, b: impl Borrow<FitRow>, what: &str) {
    let a = a.borrow();
    let b = b.borrow();
    assert_eq!(bits(a), bits(b), "{what}:\n{a:?}\n{b:?}");
}

/// Largest offset between two rows' parameters in units of `errors`.
pub fn offset(row: &FitRow, x: &[f64], errors: &[f64]) -> f64 {
    let pairs = row.parameters.iter().zip(x).zip(errors);
    super::largest(pairs.map(|((a, b), e)| ((a - b) / e).abs()))
}

/// Share of the values for which the test holds.
pub fn share<T>(values: &[T], test: impl Fn(&T) -> bool) -> f64 {
    values.iter().filter(|x| test(x)).count() as f64 / values.len() as f64
}

/// Fails if a successful fit has a number that is not finite, or a failed one an error.
pub fn sound(table: &FitTable) {
    for row in table.to_rows() {
        if row.status.is_success() {
            assert!(
                row.chi2.is_finite() && row.parameters.iter().all(|x| x.is_finite()),
                "{row:?}"
            );
        } else if row.status.code() < 0 {
            assert!(row.errors.iter().all(|e| e.is_nan()), "{row:?}");
        }
    }
}
