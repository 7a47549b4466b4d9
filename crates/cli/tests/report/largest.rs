//! The largest page that a run can be expected to make: thousands of rows, every flag, three arms, as many requested
//! spectra as may be.

use popfit::report::{About, Collector, MOST_REQUESTED, ReportFile};
use popfit::spectra::Ids;
use popfit::{
    Arm, Continuum, Device, Emulator, FitRow, Flags, Spectra, SpectralFitter, SpectralModel, Status, WriteOptions,
};

use super::browser;

const ROWS: u64 = 6000;
const LIMIT: usize = 10_000_000;

fn desi(name: &str) -> std::path::PathBuf {
    popfit_testing::root().join("tests/data/desi").join(name)
}

fn fitter() -> SpectralFitter {
    let mut builder = SpectralModel::builder();
    for name in ["b", "r", "z"] {
        let emulator = Emulator::open(desi(&format!("{name}.safetensors"))).unwrap();
        builder = builder.add_arm(Arm::new(name, emulator));
    }
    let model = builder.velocity(-1000.0..=1000.0).vsini(0.0..=500.0).continuum(Continuum::rbf(10)).marginalise(true);
    SpectralFitter::new(model.build().unwrap(), Device::cpu())
}

/// The same spectra again, as the `copy`-th of many, with flags that differ from row to row.
fn copied(spectra: &Spectra, rows: &[FitRow], copy: u64) -> (Spectra<'static>, Vec<FitRow>) {
    let first = copy * rows.len() as u64;
    let mut spectra = spectra.clone().into_owned();
    spectra.rows = (first..first + rows.len() as u64).collect();
    spectra.ids = Ids::Integer(spectra.rows.iter().map(|row| *row as i64).collect());
    let all = (1 << Flags::DESCRIPTIONS.len()) - 1;
    let rows = rows.iter().zip(&spectra.rows).map(|(row, &k)| {
        let flags = (k as u32).wrapping_mul(0x9e37_79b9) >> 7 & all;
        let mut row = row.clone();
        (row.id, row.row, row.flags) = (popfit::Id::Integer(k as i64), k, Flags::from_bits_retain(flags));
        if k % 97 == 5 { without_a_fit(row, k) } else { row }
    });
    let rows = rows.collect();
    (spectra, rows)
}

fn without_a_fit(mut row: FitRow, k: u64) -> FitRow {
    let causes = ["no_data", "bad_weight", "underdetermined", "no_overlap"];
    let cause = causes[(k / 97) as usize % causes.len()];
    let nothing = vec![f64::NAN; row.parameters.len()];
    row.status = Status::BadInput;
    row.status_text = cause.into();
    row.parameters = nothing;
    row.chi2 = f64::NAN;
    row.dof = 0;
    row
}

#[test]
fn the_largest_page_stays_below_ten_megabytes() {
    let (fitter, spectra) = (fitter(), Spectra::open(desi("coadd-synth-505.fits.gz")).unwrap());
    let rows = fitter.fit(&spectra).unwrap().to_rows();
    let mut kept = Collector::new(&fitter.parameters());
    kept.request(&(0..MOST_REQUESTED).map(|k| (100 + 3 * k).to_string()).collect::<Vec<_>>());
    for copy in 0..ROWS / rows.len() as u64 {
        let (spectra, rows) = copied(&spectra, &rows, copy);
        kept.add_with_spectra(&spectra, &rows);
    }
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("largest.html");
    let about = About::default().title("largest.parquet".into()).units(fitter.units());
    ReportFile::create(&page, &WriteOptions::default()).unwrap().write(&about, &kept, Some(&fitter)).unwrap();
    let html = std::fs::read_to_string(&page).unwrap();
    let articles = html.matches("<article").count();
    println!("{} bytes, {articles} spectra", html.len());
    assert!(html.len() <= LIMIT, "{} bytes", html.len());
    assert_eq!(html.matches("<details class='spectra folded'").count(), Flags::DESCRIPTIONS.len());
    assert!(!html.contains("left out"), "there is room for all");
    // requested, without a fit, worst, typical, and three for each flag
    let most = MOST_REQUESTED + 4 + 8 + 4 + 3 * Flags::DESCRIPTIONS.len();
    assert!((most - 20..=most).contains(&articles), "{articles} of {most}");
    let Some(seen) = browser::open(folder.path(), &page) else { return };
    browser::check(&seen, 2000);
    assert_eq!(seen[0]["galleries"], Flags::DESCRIPTIONS.len());
    assert_eq!(seen[0]["articles"], articles);
}
