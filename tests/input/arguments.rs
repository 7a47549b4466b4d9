//! The name of the argument that is wrong, for programs that show it beside the message.

use popfit::spectra::{ArmSpectra, Ids, Resolution};
use popfit::{
    Arm, Closure, Continuum, ContinuumKind, CurveFitter, CurveModel, Curves, Device, Error,
    Estimator, Formula, LabelSettings, LineSpread, ModelFile, Spectra, SpectralFitter,
    SpectralModel, SpectralModelBuilder, VelocityScan,
};
use popfit_testing::tiny::{self, linear, wave};

/// Asserts that the error is of this argument.
#[track_caller]
fn is_of(argument: &str, error: Error) {
    assert_eq!(error.argument(), Some(argument), "{error}");
}

#[test]
fn arrays_of_spectra() {
    let grid = || vec![4000.0, 4001.0, 4002.0];
    let arm = |flux: usize, ivar: usize, mask: usize, grid: Vec<f64>| {
        ArmSpectra::new(
            "b",
            3,
            grid,
            vec![1.0; flux],
            vec![1.0; ivar],
            Some(vec![false; mask]),
        )
    };
    is_of("flux", arm(7, 6, 6, grid()).unwrap_err());
    is_of("ivar", arm(6, 5, 6, grid()).unwrap_err());
    is_of("mask", arm(6, 6, 5, grid()).unwrap_err());
    is_of("wavelength", arm(6, 6, 6, vec![4000.0; 2]).unwrap_err());
    is_of("wavelength", arm(6, 6, 6, vec![4000.0; 3]).unwrap_err());
    let good = || arm(6, 6, 6, grid()).unwrap();
    is_of(
        "resolution",
        good()
            .with_resolution(Resolution {
                diagonals: 2,
                values: vec![1.0; 12].into(),
            })
            .unwrap_err(),
    );
    is_of(
        "arms",
        Spectra::from_arms(vec![good(), good()], None).unwrap_err(),
    );
    is_of("arms", Spectra::from_arms(Vec::new(), None).unwrap_err());
    is_of(
        "ids",
        Spectra::from_arms(vec![good()], Some(Ids::Integer(vec![1]))).unwrap_err(),
    );
}

#[test]
fn fits_of_spectra() {
    let emulator = linear(&["a"], wave);
    let spectra = tiny::spectra(&emulator, &[0.1], 0.01);
    let fitter = SpectralFitter::new(tiny::model(emulator, 0.0), Device::cpu());
    is_of("starts", fitter.fit_from(&spectra, &[1.0; 7]).unwrap_err());
    is_of(
        "batch_size",
        fitter.clone().batch_size(0).fit(&spectra).unwrap_err(),
    );
    is_of(
        "velocity_scan",
        fitter
            .clone()
            .velocity_scan(VelocityScan::Fixed)
            .fit(&spectra)
            .unwrap_err(),
    );
    // Two settings are no single argument.
    assert_eq!(
        fitter
            .batch_size(0)
            .starts(0)
            .fit(&spectra)
            .unwrap_err()
            .argument(),
        None
    );
    is_of("device", "cuda".parse::<Device>().unwrap_err());
}

#[test]
fn fits_of_curves() {
    let x = || vec![0.0, 1.0, 2.0];
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu());
    let wrong = |curves: Curves| fitter.fit(&curves).unwrap_err();
    is_of(
        "starts",
        wrong(Curves::on_common_grid(x(), vec![1.0; 3], vec![1.0; 3])),
    );
    is_of(
        "y",
        wrong(Curves::on_common_grid(x(), vec![1.0; 4], vec![1.0; 2])),
    );
    let curves = || Curves::on_common_grid(x(), vec![1.0; 3], vec![1.0; 2]);
    is_of("sigma", wrong(curves().sigma(vec![1.0; 2])));
    is_of("mask", wrong(curves().mask(vec![false; 2])));
    is_of("lower", wrong(curves().bounds(vec![0.0], vec![1.0; 2])));
    let counts = fitter.clone().estimator(Estimator::Poisson);
    is_of(
        "sigma",
        counts.fit(&curves().sigma(vec![1.0; 3])).unwrap_err(),
    );
    let fits = fitter.fit(&curves()).unwrap();
    is_of(
        "sigmas",
        fitter
            .confidence_intervals(&curves(), &fits, &[], &[-1.0])
            .unwrap_err(),
    );
    is_of(
        "fits",
        fitter
            .confidence_intervals(&curves(), &[], &[], &[])
            .unwrap_err(),
    );
    is_of("formula", Formula::parse("a*exq(x)").unwrap_err());
    is_of(
        "parameters",
        Closure::new(&["x"], &["a", "a"], |_, _, _| ()).unwrap_err(),
    );
}

#[test]
fn settings_of_models() {
    let build = |change: fn(SpectralModelBuilder) -> SpectralModelBuilder| {
        change(SpectralModel::builder().add_arm(Arm::new("b", linear(&["a"], wave))))
            .build()
            .unwrap_err()
    };
    is_of(
        "labels",
        build(|model| model.label("b", LabelSettings::default().start(0.0))),
    );
    is_of(
        "labels.a",
        build(|model| model.label("a", LabelSettings::default().start(f64::NAN))),
    );
    is_of(
        "labels.a",
        build(|model| model.label("a", LabelSettings::default().prior(0.0, -1.0))),
    );
    is_of("velocity", build(|model| model.fixed_velocity(1e6)));
    is_of("vsini", build(|model| model.vsini(-1.0..=2.0)));
    is_of(
        "continuum.terms",
        build(|model| {
            model.continuum(Continuum {
                kind: ContinuumKind::Rbf,
                terms: 1000,
            })
        }),
    );
    is_of(
        "arm.name",
        build(|model| model.add_arm(Arm::new("b", linear(&["a"], wave)))),
    );
    is_of(
        "arm.line_spread",
        build(|model| {
            model.add_arm(
                Arm::new("r", linear(&["a"], wave)).line_spread(LineSpread::ResolvingPower(-1.0)),
            )
        }),
    );
    is_of(
        "names",
        linear(&["a"], wave).with_label_names(&[]).unwrap_err(),
    );
    is_of("axes", CurveModel::spline(&[], &[]).unwrap_err());
    let parse = |text: &str| ModelFile::from_text("m.toml", text).unwrap_err();
    is_of(
        "labels.a.strat",
        parse("[[arm]]\nname = \"b\"\nemulator = \"e\"\n[labels.a]\nstrat = 1.0\n"),
    );
    is_of("arm[1].emulator", parse("[[arm]]\nname = \"b\"\n"));
    assert_eq!(parse("[[arm]\n").argument(), None);
}

/// Errors of files and devices are of no argument.
#[test]
fn other_errors() {
    for error in [
        Error::NoAdapter("none".into()),
        Spectra::open("/none.npz").unwrap_err(),
    ] {
        assert_eq!(error.argument(), None, "{error}");
    }
}
