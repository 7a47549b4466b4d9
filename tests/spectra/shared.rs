//! Clusters whose spectra share labels, against joint fits by dense matrices in numpy
//! (`tests/reference/make_shared.py`), and drawn with known truth.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use popfit::low_level::Journal;
use popfit::low_level::Schema;
use popfit::low_level::checks::check_spectra;
use popfit::spectra::{Column, ColumnValues};
use popfit::{
    Continuum, Control, Device, Emulator, ExposureVelocity, FitRow, LabelSettings,
    LevenbergMarquardt, NelderMead, Spectra, SpectralFitter, SpectralModel, SpectralModelBuilder,
    Status, VelocityScan,
};
use popfit_testing::fits::{devices, fitter, pick, same_bits, synb_spectra};
use popfit_testing::random::Random;
use popfit_testing::{array, demo_emulator, median};

/// Index of feh among velocity, teff, logg, feh and alpha.
const FEH: usize = 3;
const PARAMETERS: usize = 5;

fn file(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/shared");
    PathBuf::from(folder).join(name)
}

fn stars() -> Spectra<'static> {
    Spectra::open(file("stars.npz")).unwrap()
}

fn builder() -> SpectralModelBuilder {
    SpectralModel::builder()
        .arm("", Emulator::open(demo_emulator()).unwrap())
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10))
}

fn sharing(labels: &[&str]) -> SpectralModel {
    let labels = labels.iter().copied();
    builder().shared("cluster", labels).build().unwrap()
}

fn fit(model: SpectralModel, device: &Device, spectra: &Spectra) -> Vec<FitRow> {
    fitter(model, device).fit(spectra).unwrap().to_rows()
}

/// The value of the column `cluster` of each spectrum.
fn clusters_of(spectra: &Spectra) -> Vec<i64> {
    match &spectra.column("cluster").unwrap().values {
        ColumnValues::I64(clusters) => clusters.clone(),
        other => panic!("{other:?}"),
    }
}

/// Rows of each cluster in the file, in its order.
fn rows_of_cluster(spectra: &Spectra, cluster: i64) -> Vec<usize> {
    let clusters = clusters_of(spectra);
    (0..clusters.len())
        .filter(|&row| clusters[row] == cluster)
        .collect()
}

fn set_clusters(spectra: &mut Spectra, values: impl Into<ColumnValues>) {
    spectra.columns = vec![Column {
        table: "".into(),
        name: "cluster".into(),
        unit: "".into(),
        values: values.into(),
    }];
}

/// Fails unless rows agree with the joint fit of a cluster in numpy.
fn assert_agrees_with_reference(rows: &[&FitRow], cluster: i64, mode: &str) {
    let get = |key: &str| {
        array(
            &file("stars_reference.npz"),
            &format!("{cluster}_{mode}_{key}"),
        )
        .1
    };
    let (x, errors, correlations, chi2) = (get("x"), get("err"), get("correlations"), get("chi2"));
    for (k, row) in rows.iter().enumerate() {
        let what = format!("cluster {cluster}, {mode}, star {k}");
        assert!(
            (row.chi2 - chi2[k]).abs() < 0.05,
            "{what}: {} {}",
            row.chi2,
            chi2[k]
        );
        let mut pairs = row.correlations.iter();
        for a in 0..PARAMETERS {
            let error = errors[k * PARAMETERS + a];
            if error.is_nan() {
                // It ended at its bound.
                assert!(
                    row.errors[a].is_nan() && row.at_bound == 1 << a,
                    "{what}, parameter {a}"
                );
                assert!(
                    (row.parameters[a] - x[k * PARAMETERS + a]).abs() < 1e-9,
                    "{what}"
                );
                pairs.by_ref().take(PARAMETERS - 1 - a).for_each(drop);
                continue;
            }
            let offset = (row.parameters[a] - x[k * PARAMETERS + a]) / error;
            let ratio = row.errors[a] / error;
            assert!(
                offset.abs() < 0.02 && (ratio - 1.0).abs() < 0.02,
                "{what}, parameter {a}: {offset} {ratio}"
            );
            for b in a + 1..PARAMETERS {
                let expected = correlations[(k * PARAMETERS + a) * PARAMETERS + b];
                let correlation = *pairs.next().unwrap();
                assert!(
                    (correlation - expected).abs() < 0.02
                        || correlation.is_nan() && expected.is_nan(),
                    "{what}, {a} and {b}: {correlation} {expected}"
                );
            }
        }
        let expected = get("p")[0];
        let p = row.shared_p.unwrap();
        // Far from the minima without the prior, the probability is known to second order.
        let (limit, limit_of_ln) = if mode == "both" {
            (0.05, 2.0)
        } else {
            (0.01, 0.2)
        };
        let is_near = (p - expected).abs() < limit && (p.ln() - expected.ln()).abs() < limit_of_ln;
        assert!(is_near, "{what}: p {p} {expected}");
        assert!(row.status.is_success(), "{what}: {}", row.status);
    }
}

#[test]
fn clusters_meet_the_dense_joint_fit() {
    let spectra = stars();
    let with_prior = LabelSettings::default().prior(-0.9, 0.02);
    let of_two_labels = builder()
        .label("feh", with_prior)
        .shared("cluster", ["feh", "alpha"])
        .build()
        .unwrap();
    let bounded = builder()
        .label("alpha", LabelSettings::default().bounds(-0.5..=0.2))
        .shared("cluster", ["feh"])
        .build()
        .unwrap();
    let models = [
        ("feh", sharing(&["feh"])),
        ("both", of_two_labels),
        ("bounded", bounded),
    ];
    for device in devices() {
        for (mode, model) in &models {
            let rows = fit(model.clone(), &device, &spectra);
            for (cluster, members) in [(0, 2), (1, 3), (2, 5)] {
                let places = rows_of_cluster(&spectra, cluster);
                let rows: Vec<&FitRow> = places.iter().map(|&place| &rows[place]).collect();
                assert_agrees_with_reference(&rows, cluster, mode);
                // The shared labels are the same to the last bit.
                for row in &rows {
                    assert_eq!(row.shared_members, Some(members));
                    for p in model
                        .shared()
                        .unwrap()
                        .labels
                        .iter()
                        .map(|label| parameter(label))
                    {
                        assert_eq!(row.parameters[p].to_bits(), rows[0].parameters[p].to_bits());
                        assert_eq!(row.errors[p].to_bits(), rows[0].errors[p].to_bits());
                    }
                    assert_eq!(row.shared_p, rows[0].shared_p);
                }
            }
        }
    }
}

fn parameter(label: &str) -> usize {
    builder()
        .build()
        .unwrap()
        .parameters()
        .iter()
        .position(|name| name == label)
        .unwrap()
}

#[test]
fn spectra_without_a_cluster_are_fitted_alone() {
    let mut spectra = stars();
    let alone = fit(builder().build().unwrap(), &Device::cpu(), &spectra);
    let rows = fit(sharing(&["feh"]), &Device::cpu(), &spectra);
    let field = rows_of_cluster(&spectra, -1);
    assert_eq!(field.len(), 2);
    for place in field {
        same_bits(&rows[place], &alone[place], "in the field");
        assert_eq!(
            (rows[place].shared_members, rows[place].shared_p),
            (None, None)
        );
    }
    // A cluster of one star is fitted alone, too.
    let count = spectra.len() as i64;
    set_clusters(&mut spectra, (0..count).collect::<Vec<i64>>());
    for (row, alone) in fit(sharing(&["feh"]), &Device::cpu(), &spectra)
        .iter()
        .zip(&alone)
    {
        same_bits(row, alone, "alone");
        assert_eq!((row.shared_members, row.shared_p), (Some(1), None));
    }
}

#[test]
fn bits_depend_on_neither_threads_batches_nor_other_clusters() {
    let spectra = stars();
    let rows = fit(sharing(&["feh"]), &Device::cpu(), &spectra);
    let others = [
        fitter(sharing(&["feh"]), &Device::cpu())
            .batch_size(2)
            .fit(&spectra),
        rayon_pool(1).install(|| fitter(sharing(&["feh"]), &Device::cpu()).fit(&spectra)),
    ];
    for table in others {
        for (row, other) in rows.iter().zip(table.unwrap().to_rows()) {
            same_bits(row, &other, "batches of two, or one thread");
            assert_eq!(
                (row.shared_members, row.shared_p),
                (other.shared_members, other.shared_p)
            );
        }
    }
    // A stream reads a file whole.
    let mut table = fitter(sharing(&["feh"]), &Device::cpu())
        .batch_size(2)
        .table();
    let streaming = fitter(sharing(&["feh"]), &Device::cpu()).batch_size(2);
    streaming
        .fit_stream(&mut spectra.reader(), &mut table)
        .unwrap();
    for (row, other) in rows.iter().zip(table.to_rows()) {
        same_bits(row, other, "stream");
    }
    // A cluster alone, named by a text.
    let places = rows_of_cluster(&spectra, 1);
    let mut cluster = pick(&spectra, &places);
    set_clusters(&mut cluster, vec!["M 67".to_string(); places.len()]);
    for (other, place) in fit(sharing(&["feh"]), &Device::cpu(), &cluster)
        .iter()
        .zip(places)
    {
        same_bits(&rows[place], other, "a cluster alone");
    }
}

fn rayon_pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap()
}

/// Stars that do not converge, or have no data, are left out of their cluster.
#[test]
fn a_star_that_cannot_be_fitted_does_not_take_part() {
    let spectra = stars();
    let places = rows_of_cluster(&spectra, 2);
    let expected = {
        let mut four = pick(&spectra, &places[1..]);
        set_clusters(&mut four, vec![1i64; 4]);
        fit(sharing(&["feh"]), &Device::cpu(), &four)
    };
    let mut five = pick(&spectra, &places);
    set_clusters(&mut five, vec![1i64; 5]);
    let pixels = five.arms[0].pixels;
    five.arms[0].ivar.to_mut()[..pixels].fill(0.0);
    let rows = fit(sharing(&["feh"]), &Device::cpu(), &five);
    assert_eq!(
        (rows[0].status, rows[0].shared_members),
        (Status::BadInput, None)
    );
    for (row, expected) in rows[1..].iter().zip(&expected) {
        same_bits(row, expected, "four of five");
        assert_eq!(row.shared_members, Some(4));
    }
}

/// A shared label whose best value lies beyond a bound ends there, in all rows, and the others are those of a fit in
/// which it is fixed.
#[test]
fn a_shared_label_ends_at_its_bound() {
    let spectra = stars();
    let places = rows_of_cluster(&spectra, 1);
    let cluster = pick_with_clusters(&spectra, &places);
    let bounded = builder()
        .label("feh", LabelSettings::default().bounds(-1.0..=0.0))
        .shared("cluster", ["feh"])
        .build()
        .unwrap();
    let fixed = builder()
        .label("feh", LabelSettings::default().fixed(-1.0))
        .build()
        .unwrap();
    let rows = fitter(bounded, &Device::cpu())
        .released_errors(true)
        .fit(&cluster)
        .unwrap()
        .to_rows();
    let free = fit(sharing(&["feh"]), &Device::cpu(), &cluster);
    for ((row, fixed), free) in rows
        .iter()
        .zip(fit(fixed, &Device::cpu(), &cluster))
        .zip(free)
    {
        assert_eq!((row.parameters[FEH], row.at_bound), (-1.0, 1 << FEH));
        assert!(row.errors[FEH].is_nan() && row.status.is_success());
        let released = row.released_errors[FEH] / free.errors[FEH];
        assert!((0.6..1.6).contains(&released), "{released}");
        for (p, q) in [(0, 0), (1, 1), (2, 2), (4, 3)] {
            let offset = (row.parameters[p] - fixed.parameters[q]) / fixed.errors[q];
            let ratio = row.errors[p] / fixed.errors[q];
            assert!(
                offset.abs() < 0.02 && (ratio - 1.0).abs() < 0.02,
                "{p}: {offset} {ratio}"
            );
        }
    }
}

fn pick_with_clusters(spectra: &Spectra, places: &[usize]) -> Spectra<'static> {
    let mut picked = pick(spectra, places);
    set_clusters(&mut picked, vec![1i64; places.len()]);
    picked
}

/// A drawn population of clusters.
struct Population {
    spectra: Spectra<'static>,
    /// (stars, P)
    truth: Vec<Vec<f64>>,
    counts: Vec<usize>,
}

/// Draws clusters of these numbers of stars: each has a feh of its own, and its stars have signal-to-noise ratios from
/// 20 to 80.
fn draw_population(counts: Vec<usize>, seed: u64) -> Population {
    let mut random = Random(seed);
    let like = pick(&stars(), &[0]);
    let model = fitter(builder().build().unwrap(), &Device::cpu());
    let mut truth = Vec::new();
    let (mut flux, mut ivar, mut clusters) = (Vec::new(), Vec::new(), Vec::new());
    let grid = like.arms[0].grid(0).into_owned();
    for (cluster, &count) in counts.iter().enumerate() {
        let feh = -1.5 + 1.2 * random.uniform();
        for _ in 0..count {
            let parameters = vec![
                400.0 * random.uniform() - 200.0,
                5000.0 + 1200.0 * random.uniform(),
                2.5 + 1.8 * random.uniform(),
                feh,
                0.3 * random.uniform(),
            ];
            let template = &model.predict(&parameters, Some(&like)).unwrap()[0].flux;
            let finite: Vec<f64> = template.iter().copied().filter(|x| x.is_finite()).collect();
            let sigma = median(finite) / (20.0 + 60.0 * random.uniform());
            for value in template {
                let (value, weight) = if value.is_finite() {
                    (*value, sigma.powi(-2))
                } else {
                    (1.0, 0.0)
                };
                flux.push(value + sigma * random.normal());
                ivar.push(weight);
            }
            truth.push(parameters);
            clusters.push(cluster as i64);
        }
    }
    let mut spectra = Spectra::from_arrays(grid, flux, ivar, None, None).unwrap();
    set_clusters(&mut spectra, clusters);
    Population {
        spectra,
        truth,
        counts,
    }
}

/// Number of clusters of the test: 24, or as many as the environment says.
fn cluster_count() -> usize {
    std::env::var("POPFIT_CLUSTERS").map_or(24, |count| count.parse().unwrap())
}

/// Errors are those of the scatter, and the probability is uniform where the label is the same for all.
#[test]
fn drawn_clusters_have_the_pulls_of_their_errors() {
    let mut random = Random(77);
    let counts: Vec<usize> = (0..cluster_count()).map(|_| 5 + random.below(46)).collect();
    let population = draw_population(counts, 4);
    let rows = fit(sharing(&["feh"]), &Device::cpu(), &population.spectra);
    // 1. Pulls of the shared label, one for each cluster, and of the own ones.
    let mut shared_squares = Vec::new();
    let mut own_squares = Vec::new();
    let mut probabilities = Vec::new();
    let mut first = 0;
    for &count in &population.counts {
        let stars = first..first + count;
        first = stars.end;
        let row = &rows[stars.start];
        shared_squares.push(
            ((row.parameters[FEH] - population.truth[stars.start][FEH]) / row.errors[FEH]).powi(2),
        );
        probabilities.push(row.shared_p.unwrap());
        for (row, truth) in rows[stars.clone()].iter().zip(&population.truth[stars]) {
            assert!(row.status.is_success(), "{row:?}");
            assert_eq!(row.shared_members, Some(count as u64));
            for p in (0..PARAMETERS).filter(|&p| p != FEH && row.errors[p].is_finite()) {
                own_squares.push(((row.parameters[p] - truth[p]) / row.errors[p]).powi(2));
            }
        }
    }
    let root_mean = |squares: &[f64]| (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
    let clusters = probabilities.len() as f64;
    let (shared, own) = (root_mean(&shared_squares), root_mean(&own_squares));
    probabilities.sort_by(f64::total_cmp);
    let distances = probabilities.iter().enumerate().map(|(k, p)| {
        let (low, high) = (k as f64 / clusters, (k + 1) as f64 / clusters);
        (p - low).abs().max((p - high).abs())
    });
    let distance = distances.fold(0.0, f64::max);
    println!(
        "{clusters} clusters, {} stars: pulls {shared:.3} of the shared label, {own:.3} of the own ones; p from {:.4}, \
         largest distance from uniform {distance:.3}",
        rows.len(),
        probabilities[0]
    );
    // The scatter of a root mean square of n pulls is 1/√(2n); three of them, and for p Kolmogorov and Smirnov's 0.1 %.
    assert!(
        (shared - 1.0).abs() < 0.07f64.max(3.0 / (2.0 * clusters).sqrt()),
        "{shared}"
    );
    assert!((own - 1.0).abs() < 0.07, "{own}");
    assert!(distance < 1.95 / clusters.sqrt(), "{distance}");
}

/// A star of another metallicity among twenty is found by the probability, and does not stop the fit.
#[test]
fn a_wrong_member_makes_the_probability_small() {
    let population = draw_population(vec![20, 20], 9);
    let mut spectra = population.spectra;
    // The last star of the first cluster changes places with the first one of the second.
    let mut clusters = clusters_of(&spectra);
    clusters.swap(19, 20);
    set_clusters(&mut spectra, clusters);
    let wrong = fit(sharing(&["feh"]), &Device::cpu(), &spectra);
    assert!(wrong.iter().all(|row| row.status.is_success()));
    let p = wrong[0].shared_p.unwrap();
    assert!(p < 1e-6 && wrong[39].shared_p.unwrap() < 1e-6, "{p}");
}

/// Stars with all kinds of labels do not share any, and their joint fit ends all the same.
#[test]
fn clusters_that_are_none_have_fits_that_end() {
    let mut spectra = synb_spectra();
    set_clusters(&mut spectra, vec![0i64; 128]);
    for labels in [&["feh"][..], &["teff"], &["logg", "alpha"], &["velocity"]] {
        let rows = fit(sharing(labels), &Device::cpu(), &spectra);
        println!(
            "{labels:?}: {}, evaluations of the first star {}, p {:?}",
            rows[0].status, rows[0].evaluations, rows[0].shared_p
        );
        for row in rows {
            let has_ended = row.status.is_success() || row.status == Status::MaxRounds;
            assert!(has_ended, "{labels:?}: {row:?}");
            assert_eq!(row.shared_members, Some(128));
            assert!(row.shared_p.unwrap() < 1e-100);
        }
    }
}

/// A star of a large cluster is evaluated as often as one of a small cluster.
#[test]
fn the_cost_is_linear_in_the_stars() {
    let evaluations_of = |count: usize, clusters: usize| {
        let population = draw_population(vec![count; clusters], 21);
        let joint = fit(sharing(&["feh"]), &Device::cpu(), &population.spectra);
        let alone = fit(
            builder().build().unwrap(),
            &Device::cpu(),
            &population.spectra,
        );
        let pairs = joint.iter().zip(&alone);
        let more: u32 = pairs
            .map(|(joint, alone)| joint.evaluations - alone.evaluations)
            .sum();
        f64::from(more) / joint.len() as f64
    };
    let (small, large) = (evaluations_of(5, 20), evaluations_of(50, 2));
    println!(
        "evaluations of a star beyond its single fit: {small:.2} in clusters of 5, {large:.2} of 50"
    );
    assert!(large < 1.5 * small + 2.0 && large < 15.0, "{small} {large}");
}

/// What does not go together is refused by name.
#[test]
fn what_cannot_share_labels_is_refused_by_name() {
    let message_of = |builder: SpectralModelBuilder| builder.build().unwrap_err().to_string();
    for (builder, expected) in [
        (
            builder().shared("cluster", ["fhe"]),
            "`fhe` is no free parameter; did you mean `feh`",
        ),
        (
            builder().shared("cluster", ["feh", "feh"]),
            "`feh` is there twice",
        ),
        (
            builder().shared("cluster", Vec::<String>::new()),
            "at least one label",
        ),
        (builder().shared(" ", ["feh"]), "shared.column"),
        (
            builder()
                .label("feh", LabelSettings::default().fixed(0.0))
                .shared("cluster", ["feh"]),
            "`feh` is no free parameter",
        ),
        (
            builder()
                .label(
                    "feh",
                    LabelSettings::default().prior(0.0, 1.0).mean_column("FEH0"),
                )
                .shared("cluster", ["feh"]),
            "from the column `FEH0`",
        ),
        (
            builder()
                .exposures(ExposureVelocity::Shared)
                .shared("cluster", ["feh"]),
            "several exposures cannot share labels",
        ),
    ] {
        let message = message_of(builder);
        assert!(message.contains(expected), "{message}");
    }
    let spectra = stars();
    let fitter = || fitter(sharing(&["feh"]), &Device::cpu());
    let first_solver = LevenbergMarquardt::default();
    let refusals: [(SpectralFitter, &str); 4] = [
        (
            fitter().velocity_scan(VelocityScan::Fixed),
            "the scan of the velocity",
        ),
        (fitter().solver(NelderMead::default()), "Nelder–Mead"),
        (
            fitter().solver(popfit::Solver::LevenbergMarquardtThenNelderMead(
                first_solver,
                NelderMead::default(),
            )),
            "Nelder–Mead",
        ),
        (
            SpectralFitter::new(sharing(&["feh"]).join_exposures(true), Device::cpu()),
            "objects with several exposures",
        ),
    ];
    for (fitter, expected) in refusals {
        let message = fitter.fit(&spectra).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    // Spectra without the column.
    let mut without = stars();
    without.columns.clear();
    without.file = "stars.npz".into();
    let message = fitter().fit(&without).unwrap_err().to_string();
    assert!(
        message.contains("stars.npz: no column `cluster`"),
        "{message}"
    );
    let checked = check_spectra(&fitter(), [&without])
        .unwrap_err()
        .to_string();
    assert_eq!(checked, message);
}

/// Tables of models that share no labels have no columns of clusters.
#[test]
fn only_models_that_share_labels_have_columns_of_clusters() {
    let names = |model: SpectralModel| {
        let fitter = fitter(model, &Device::cpu());
        Schema::of(&fitter, false).column_names().unwrap()
    };
    let shared = names(sharing(&["feh"]));
    let alone = names(builder().build().unwrap());
    let only_in_shared: Vec<&String> = shared.iter().filter(|name| !alone.contains(name)).collect();
    assert_eq!(only_in_shared, ["shared_members", "shared_p"]);
}

/// The objective of a row is that of its spectrum at the joint parameters, the prior on a shared label included.
#[test]
fn objectives_of_rows_are_those_of_their_spectra() {
    let spectra = stars();
    let with_prior = LabelSettings::default().prior(-0.9, 0.02);
    let model = builder()
        .label("feh", with_prior)
        .shared("cluster", ["feh"])
        .build()
        .unwrap();
    let fitter = fitter(model, &Device::cpu());
    let rows = fitter.fit(&spectra).unwrap().to_rows();
    let parameters: Vec<f64> = rows.iter().flat_map(|row| row.parameters.clone()).collect();
    let objectives = fitter.objective(&spectra, &parameters, false).unwrap();
    for (k, row) in rows.iter().enumerate() {
        let (chi2, objective) = (objectives.chi2[k], objectives.objective[k]);
        assert!((row.chi2 - chi2).abs() < 0.02, "{} {chi2}", row.chi2);
        assert!(
            (row.objective - objective).abs() < 0.02,
            "{} {objective}",
            row.objective
        );
    }
}

/// Rows that an interrupted run keeps are those of a whole run: a cluster is fitted whole, or its rows are interrupted.
#[test]
fn an_interrupted_run_resumes_to_the_same_rows() {
    let spectra = stars();
    let fitter = fitter(sharing(&["feh"]), &Device::cpu()).batch_size(2);
    let whole = fitter.fit(&spectra).unwrap().to_rows();
    let mut interrupted_clusters = 0;
    for n in 1..30 {
        let folder = tempfile::tempdir().unwrap();
        let control = Control::default();
        let cancel = control.cancel.clone();
        let calls = AtomicU64::new(0);
        let stopping = Control {
            progress: Some(Arc::new(move |_, _| {
                let is_last = calls.fetch_add(1, Ordering::Relaxed) + 1 >= n;
                cancel.store(is_last, Ordering::Relaxed);
            })),
            ..control
        };
        for control in [stopping, Control::default()] {
            let mut journal = Journal::open(&folder.path().join("out.csv"), "", true).unwrap();
            let mut table = fitter.table();
            fitter
                .clone()
                .control(control.clone())
                .fit_journaled(&mut spectra.reader(), &mut table, &mut journal)
                .unwrap();
            let was_stopped = control.cancel.load(Ordering::Relaxed);
            let rows = table.to_rows();
            for (row, whole) in rows.iter().zip(&whole) {
                if row.status == Status::Interrupted {
                    assert!(was_stopped && row.shared_p.is_none());
                    interrupted_clusters += i32::from(row.message.contains("cluster"));
                } else {
                    same_bits(row, whole, &format!("call {n}"));
                    assert_eq!(
                        (row.shared_members, row.shared_p),
                        (whole.shared_members, whole.shared_p)
                    );
                }
            }
        }
    }
    assert!(interrupted_clusters > 0);
}
