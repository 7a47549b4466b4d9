//! Every key of the model file, and the messages about wrong ones.

use super::*;
use crate::emulator::Activation;
use crate::{Estimator, Interpolation, Jitter, LineSpread, NonFinite, Widening};

fn parse(text: &str) -> Result<ModelFile> {
    ModelFile::parse(Path::new("models/m.toml"), text.to_string())
}

/// Returns the message for a model file of one arm and `rest`, which begins at line 4.
fn error_message(rest: &str) -> String {
    let text = format!("[[arm]]\nname = \"b\"\nemulator = \"e.safetensors\"\n{rest}");
    match parse(&text) {
        Ok(_) => panic!("accepted: {rest}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_supported_key_is_read() {
    let file = parse(
        r#"
[[arm]]
name = "b"
emulator = "b.npz"
wavelength = "grid.npz"
labels = ["teff", "logg"]
activation = "sigmoid"
range = [4000, 5500.0]
interpolation = "linear"
line_spread = "none"
continuum = { kind = "rbf", terms = 8 }
[continuum]
kind = "chebyshev"
terms = 10
marginalise = true
[spectra]
mask = [[4300.0, 4450.0], [5000, 5001]]
mask_rest = [[4850.0, 4875.0]]
widen = { bits = [22, 3], factor = 3 }
jitter = 0.02
error_floor = 0.1
nonfinite = "mask"
[velocity]
range = [-1500.0, 1500.0]
[labels.teff]
start = 5500.0
bounds = [3500.0, 8000.0]
prior = { mean = 5500.0, sigma = 100.0 }
[labels.logg]
fixed = 4.5
[solver]
kind = "lm"
starts = 2
released_errors = true
"#,
    )
    .unwrap();
    let arm = file.arms.first().unwrap();
    assert_eq!(
        (arm.name.as_str(), arm.emulator.as_path()),
        ("b", Path::new("b.npz"))
    );
    assert_eq!(arm.wavelength.as_deref(), Some(Path::new("grid.npz")));
    assert_eq!(
        arm.labels.as_deref(),
        Some(&["teff".to_string(), "logg".to_string()][..])
    );
    assert_eq!(arm.activation, Some(Activation::Sigmoid));
    assert_eq!(
        (arm.range, arm.interpolation),
        (Some((4000.0, 5500.0)), Interpolation::Linear)
    );
    assert_eq!(arm.continuum, Some(Continuum::rbf(8)));
    assert_eq!(
        (file.continuum, file.marginalise),
        (Some(Continuum::chebyshev(10)), true)
    );
    assert_eq!(file.spectra.mask, [(4300.0, 4450.0), (5000.0, 5001.0)]);
    assert_eq!(file.spectra.mask_rest, [(4850.0, 4875.0)]);
    assert_eq!(file.spectra.widen, Some(Widening::new([22, 3], 3.0)));
    assert_eq!(
        (
            file.spectra.jitter,
            file.spectra.error_floor,
            file.spectra.nonfinite
        ),
        (Jitter::Fraction(0.02), 0.1, NonFinite::Mask)
    );
    assert_eq!(
        (file.velocity, file.starts),
        (VelocityEntry::Range(-1500.0, 1500.0), Some(2))
    );
    assert_eq!(file.released_errors, Some(true));
    let teff = LabelSettings {
        start: Some(5500.0),
        bounds: Some((3500.0, 8000.0)),
        prior: Some((5500.0, 100.0)),
        ..LabelSettings::default()
    };
    let logg = LabelSettings {
        fixed: Some(4.5),
        ..LabelSettings::default()
    };
    let label = |name: &str| {
        file.labels
            .iter()
            .find(|(label, _)| label == name)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(
        (label("teff"), label("logg"), file.labels.len()),
        (teff, logg, 2)
    );
}

#[test]
fn rotation_line_spread_ties_and_columns_are_read() {
    let text = r#"
[[arm]]
name = "b"
emulator = "b.npz"
line_spread = "file"
[[arm]]
name = "r"
emulator = "r.npz"
line_spread = { resolving_power = 4000 }
[[arm]]
name = "z"
emulator = "z.npz"
line_spread = { fwhm = 1.55 }
[velocity]
range = [-500, 500]
start = { column = "V0" }
[vsini]
range = [0, 300]
prior = { mean = 10, sigma = { column = "DV" } }
[labels.alpha]
tied = "0.4 - 0.1*feh"
[labels.teff]
start = { column = "TEFF0" }
bounds = [3500, { column = "TMAX" }]
"#;
    let file = parse(text).unwrap();
    let spreads: Vec<LineSpread> = file.arms.iter().map(|arm| arm.line_spread).collect();
    assert_eq!(
        spreads,
        [
            LineSpread::File,
            LineSpread::ResolvingPower(4000.0),
            LineSpread::Fwhm(1.55)
        ]
    );
    assert_eq!(file.vsini, VelocityEntry::Range(0.0, 300.0));
    let label = |name: &str| {
        file.labels
            .iter()
            .find(|(label, _)| label == name)
            .unwrap()
            .1
            .clone()
    };
    let column = |name: &str| Some(name.to_string());
    assert_eq!(label("velocity").columns.start, column("V0"));
    assert_eq!(
        (label("vsini").prior, label("vsini").columns.sigma),
        (Some((10.0, 1.0)), column("DV"))
    );
    assert_eq!(label("alpha").tied, column("0.4 - 0.1*feh"));
    let teff = label("teff");
    assert_eq!(
        (teff.start, teff.bounds),
        (None, Some((3500.0, f64::INFINITY)))
    );
    assert_eq!(
        (teff.columns.start, teff.columns.upper, teff.columns.lower),
        (column("TEFF0"), column("TMAX"), None)
    );
}

#[test]
fn losses_have_default_or_given_numbers() {
    for (text, expected) in [
        ("", Estimator::LeastSquares),
        ("loss = \"huber\"", Estimator::Huber(1.345)),
        ("loss = \"student\"", Estimator::Student(4.0)),
        ("loss = { kind = \"cauchy\" }", Estimator::Cauchy(2.385)),
        (
            "loss = { kind = \"huber\", scale = 2 }",
            Estimator::Huber(2.0),
        ),
        (
            "loss = { kind = \"student\", dof = 2.5 }",
            Estimator::Student(2.5),
        ),
    ] {
        let file = parse(&format!(
            "[[arm]]\nname = \"b\"\nemulator = \"b.npz\"\n[spectra]\n{text}\n"
        ))
        .unwrap();
        assert_eq!(file.spectra.loss, expected, "{text}");
    }
}

#[test]
fn unknown_keys_give_a_suggestion_and_the_line() {
    let cases = [
        (
            "[velocty]\nrange = [0, 1]\n",
            "line 4: unknown key `velocty`; did you mean `velocity`?",
        ),
        (
            "emulater = \"x\"\n",
            "line 4: unknown key `arm[1].emulater`; did you mean `emulator`?",
        ),
        (
            "[continuum]\nkind = \"rbf\"\nterm = 10\n",
            "line 6: unknown key `continuum.term`; did you mean `terms`?",
        ),
        (
            "[labels.teff]\n\nstrat = 5.0\n",
            "line 6: unknown key `labels.teff.strat`; did you mean `start`?",
        ),
        (
            "continuum = {kind = \"rbf\", terms = 4, marginalise = true}\n",
            "unknown key `arm[1].continuum.marginalise`",
        ),
    ];
    for (rest, expected) in cases {
        let message = error_message(rest);
        assert!(
            message.contains("models/m.toml") && message.contains(expected),
            "{message}"
        );
    }
}

#[test]
fn messages_about_wrong_values_name_the_expected_ones() {
    let cases = [
        (
            "range = \"blue\"\n",
            "`arm[1].range` must be [low, high], two finite numbers, not \"blue\"",
        ),
        ("range = [4000]\n", "must be [low, high]"),
        ("range = [-1, 4000]\n", "positive"),
        (
            "interpolation = \"spline\"\n",
            "must be \"cubic\" or \"linear\", not \"spline\"",
        ),
        (
            "activation = \"swish\"\n",
            "`arm[1].activation` must be \"silu\" or \"leaky_relu\" or",
        ),
        (
            "[continuum]\nkind = \"rbf\"\nterms = 2\n",
            "`continuum.terms` must be an integer from 4 to 32, not 2",
        ),
        (
            "[continuum]\nkind = \"none\"\nterms = 2\n",
            "has no meaning",
        ),
        (
            "[spectra]\nloss = \"tukey\"\n",
            "`spectra.loss` must be \"huber\" or \"student\" or \"cauchy\", not \"tukey\"",
        ),
        (
            "[spectra]\nloss = { scale = 2 }\n",
            "`spectra.loss.kind` is missing",
        ),
        (
            "[spectra]\nloss = { kind = \"huber\", scale = 0 }\n",
            "`spectra.loss.scale` must be positive",
        ),
        (
            "[spectra]\nloss = { kind = \"student\", scale = 2 }\n",
            "`spectra.loss.scale` has no meaning",
        ),
        (
            "[spectra]\nloss = { kind = \"cauchy\", dof = 4 }\n",
            "takes `scale`",
        ),
        ("[velocity]\nrange = [0, nan]\n", "finite"),
        ("[velocity]\nrange = [0, 3e5]\n", "speed of light"),
        (
            "[velocity]\nrange = [0, 1]\nfixed = 0\n",
            "`velocity.fixed` excludes `range`",
        ),
        ("[velocity]\n", "`velocity.range` is missing"),
        (
            "[labels]\nteff = 5000\n",
            "`labels.teff` must be a table, not 5000",
        ),
        (
            "[labels.teff]\nfixed = 1\nstart = 2\n",
            "`labels.teff.fixed` excludes `start`",
        ),
        (
            "[labels.teff]\ntied = \"feh\"\nstart = 2\n",
            "`labels.teff.tied` excludes `start`",
        ),
        (
            "[labels.teff]\nstart = { colum = \"A\" }\n",
            "must be a finite number or { column = \"NAME\" }",
        ),
        (
            "[vsini]\nrange = [-1, 300]\n",
            "`vsini.range` must not be negative",
        ),
        (
            "line_spread = \"own\"\n",
            "`arm[1].line_spread` must be \"none\" or \"file\" or { resolving_power = … } or { fwhm = … }, not \"own\"",
        ),
        (
            "line_spread = 4000\n",
            "{ resolving_power = … } or { fwhm = … }, not 4000",
        ),
        (
            "line_spread = { fwhm = 1, resolving_power = 2 }\n",
            "`arm[1].line_spread.fwhm` excludes `resolving_power`",
        ),
        ("line_spread = { fwmh = 1 }\n", "did you mean `fwhm`?"),
        (
            "[labels.teff]\nprior = { mean = 1, sigma = 0 }\n",
            "`labels.teff.prior.sigma` must be positive",
        ),
        ("[spectra]\nerror_floor = -1\n", "must not be negative"),
        ("[spectra]\njitter = -0.1\n", "must not be negative"),
        ("[spectra]\njitter = \"fitted\"\n", "\"fit\" or a number"),
        ("[spectra]\nmask = [1, 2]\n", "must be [[low, high], …]"),
        (
            "[spectra]\nmask_rest = [4850, 4875]\n",
            "must be [[low, high], …]",
        ),
        (
            "[spectra]\nwiden = [22]\n",
            "`spectra.widen` must be a table",
        ),
        (
            "[spectra]\nwiden = { factor = 2 }\n",
            "`spectra.widen.bits` is missing",
        ),
        (
            "[spectra]\nwiden = { bits = [3] }\n",
            "`spectra.widen.factor` is missing",
        ),
        (
            "[spectra]\nwiden = { bits = [], factor = 2 }\n",
            "`spectra.widen.bits` must name a bit",
        ),
        (
            "[spectra]\nwiden = { bits = [64], factor = 2 }\n",
            "`spectra.widen.bits` must be an array of integers from 0 to 63",
        ),
        (
            "[spectra]\nwiden = { bits = [3, 4, 3], factor = 2 }\n",
            "`spectra.widen.bits` must not have bit 3 twice",
        ),
        (
            "[spectra]\nwiden = { bits = [3], factor = 0.9 }\n",
            "`spectra.widen.factor` must be a finite number of 1 or more",
        ),
        (
            "[spectra]\nwiden = { bits = [3], factor = inf }\n",
            "`spectra.widen.factor` must be a finite number",
        ),
        (
            "[spectra]\nwiden = { bits = [3], factr = 2 }\n",
            "unknown key `spectra.widen.factr`",
        ),
        (
            "[spectra]\nnonfinite = \"ignore\"\n",
            "\"error\" or \"mask\"",
        ),
        ("[solver]\nstarts = 0\n", "an integer from 1 to 64, not 0"),
        (
            "[solver]\nkind = \"simplex\"\n",
            "\"lm\" or \"nelder-mead\"",
        ),
        ("[velocity\n", "line 4"),
    ];
    for (rest, expected) in cases {
        let message = error_message(rest);
        assert!(
            message.contains("models/m.toml, line") && message.contains(expected),
            "{rest}: {message}"
        );
    }
    assert!(parse("").unwrap_err().to_string().contains("no [[arm]]"));
    assert!(
        parse("[[arm]]\nname = \"b\"\n")
            .unwrap_err()
            .to_string()
            .contains("`arm[1].emulator` is missing")
    );
    assert!(
        parse("[arm]\nname = \"b\"\n")
            .unwrap_err()
            .to_string()
            .contains("[[arm]]")
    );
}

#[test]
fn reversed_bounds_are_errors_with_the_line() {
    for rest in [
        "[velocity]\nrange = [1, 0]\n",
        "[labels.a]\nbounds = [2, 1]\n",
        "[spectra]\nmask = [[2, 1]]\n",
    ] {
        let message = error_message(rest);
        assert!(message.contains("models/m.toml, line 5"), "{message}");
    }
}

#[test]
fn solvers_and_velocity_scans_are_read_by_name() {
    let parse_arm_with = |rest: &str| {
        parse(&format!(
            "[[arm]]\nname = \"b\"\nemulator = \"b.safetensors\"\n{rest}"
        ))
        .unwrap()
    };
    assert_eq!(parse_arm_with("").solver, None);
    assert_eq!(
        parse_arm_with("[solver]\nkind = \"nelder-mead\"\nstarts = 3\n").solver,
        Some(crate::NelderMead::default().into())
    );
    assert_eq!(
        parse_arm_with("[solver]\nkind = \"lm+nelder-mead\"\n")
            .solver
            .map(|solver| solver.name()),
        Some("lm+nelder-mead")
    );
    let scan = parse_arm_with("[velocity]\nrange = [-1, 1]\nscan = \"refitted\"\n").velocity_scan;
    assert_eq!(scan, Some(VelocityScan::Refitted));
    assert!(
        error_message("[velocity]\nrange = [-1, 1]\nscan = \"fix\"\n").contains("velocity.scan")
    );
}
