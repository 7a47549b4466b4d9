//! The largest page that a run can be expected to make: thousands of rows, every flag, three arms, as many requested
//! spectra as may be.

use popfit::low_level::FLAG_DESCRIPTIONS;
use popfit::low_level::report::{About, Collector, MOST_REQUESTED, ReportFile};
use popfit::spectra::Ids;
use popfit::{
    Arm, Continuum, Device, Emulator, FitRow, Flags, Spectra, SpectralFitter, SpectralModel,
    Status, WriteOptions,
};

use super::browser;

const ROWS: u64 = 6000;
const LIMIT: usize = 10_000_000;
/// Number of rows in the page's table.
const LISTED: u64 = 2000;

fn desi(name: &str) -> std::path::PathBuf {
    popfit_testing::root().join("tests/data/desi").join(name)
}

fn fitter() -> SpectralFitter {
    let mut builder = SpectralModel::builder();
    for name in ["b", "r", "z"] {
        let emulator = Emulator::open(desi(&format!("{name}.safetensors"))).unwrap();
        builder = builder.add_arm(Arm::new(name, emulator));
    }
    let model = builder
        .velocity(-1000.0..=1000.0)
        .vsini(0.0..=500.0)
        .continuum(Continuum::rbf(10))
        .marginalise(true);
    SpectralFitter::new(model.build().unwrap(), Device::cpu())
}

/// The same spectra again, as the `copy`-th of many, with flags that differ from row to row.
fn copied(spectra: &Spectra, rows: &[FitRow], copy: u64) -> (Spectra<'static>, Vec<FitRow>) {
    let first = copy * rows.len() as u64;
    let mut spectra = spectra.clone().into_owned();
    spectra.rows = (first..first + rows.len() as u64).collect();
    spectra.ids = Ids::Integer(spectra.rows.iter().map(|row| *row as i64).collect());
    let all = (1 << FLAG_DESCRIPTIONS.len()) - 1;
    let rows = rows.iter().zip(&spectra.rows).map(|(row, &k)| {
        let flags = (k as u32).wrapping_mul(0x9e37_79b9) >> 7 & all;
        let mut row = row.clone();
        (row.id, row.row, row.flags) = (popfit::Id::Integer(k as i64), k, Flags::from_bits(flags));
        if k % 97 == 5 {
            without_a_fit(row, k)
        } else {
            row
        }
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
    let (fitter, spectra) = (
        fitter(),
        Spectra::open(desi("coadd-synth-505.fits.gz")).unwrap(),
    );
    let rows = fitter.fit(&spectra).unwrap().to_rows();
    let mut kept = Collector::new(&fitter.parameters());
    kept.request(
        &(0..MOST_REQUESTED)
            .map(|k| (100 + 3 * k).to_string())
            .collect::<Vec<_>>(),
    );
    for copy in 0..ROWS / rows.len() as u64 {
        let (spectra, rows) = copied(&spectra, &rows, copy);
        kept.add_with_spectra(&spectra, &rows);
    }
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("largest.html");
    let about = About::default()
        .title("largest.parquet".into())
        .units(fitter.units());
    ReportFile::create(&page, &WriteOptions::default())
        .unwrap()
        .write(&about, &kept, Some(&fitter))
        .unwrap();
    let html = std::fs::read_to_string(&page).unwrap();
    let articles = html.matches("<article").count();
    println!("{} bytes, {articles} spectra", html.len());
    assert!(html.len() <= LIMIT, "{} bytes", html.len());
    assert_eq!(
        html.matches("<details class='spectra folded'").count(),
        FLAG_DESCRIPTIONS.len()
    );
    assert!(!html.contains("left out"), "there is room for all");
    // requested, without a fit, worst, typical, and three for each flag
    let most = MOST_REQUESTED + 4 + 8 + 4 + 3 * FLAG_DESCRIPTIONS.len();
    assert!(
        (most - 20..=most).contains(&articles),
        "{articles} of {most}"
    );
    let Some(seen) = browser::open(folder.path(), &page) else {
        return;
    };
    browser::check(&seen, LISTED);
    assert_eq!(seen[0]["galleries"], FLAG_DESCRIPTIONS.len());
    assert_eq!(seen[0]["articles"], articles);
}

/// Ids, paths and a model file as long as popfit reads them, in all rows that a page lists.
#[test]
fn long_texts_keep_the_page_below_ten_megabytes() {
    let mut kept = Collector::new(&["velocity".into(), "mass".into()]);
    let filling = "<&'é".repeat(1023);
    let rows = |first: u64| -> Vec<FitRow> {
        let long = |k: u64| {
            let mut row = super::row(popfit::Id::Text(format!("{filling}{k:04}{filling}")), k);
            row.file = format!("/{filling}/{}.npz", k % 2).into();
            row
        };
        (first..first + 100).map(long).collect()
    };
    (0..LISTED)
        .step_by(100)
        .for_each(|first| kept.add(&rows(first)));
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("long.html");
    let metadata = popfit::Metadata {
        model: "# a comment\n".repeat(1 << 20),
        ..popfit::Metadata::default()
    };
    let about = About::default()
        .title("long.parquet".into())
        .metadata(metadata);
    ReportFile::create(&page, &WriteOptions::default())
        .unwrap()
        .write(&about, &kept, None)
        .unwrap();
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.len() <= LIMIT, "{} bytes", html.len());
    // they can be told apart
    let rows = html
        .split_once("id=\"rows\">")
        .unwrap()
        .1
        .split_once("</script>")
        .unwrap()
        .0;
    let rows: serde_json::Value = serde_json::from_str(rows).unwrap();
    let cells = |column: usize| {
        rows["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(move |row| row["c"][column].to_string())
    };
    assert_eq!(
        cells(0).collect::<std::collections::BTreeSet<_>>().len() as u64,
        LISTED
    );
    let files = rows["head"]
        .as_array()
        .unwrap()
        .iter()
        .position(|head| head["name"] == "file")
        .unwrap();
    assert_eq!(
        cells(files)
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        2
    );
    let Some(seen) = browser::open(folder.path(), &page) else {
        return;
    };
    browser::check(&seen, LISTED);
}
