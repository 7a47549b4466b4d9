//! The name of the argument at fault, which programs show beside the message.

use popfit::spectra::{ArmSpectra, Ids, Resolution};
use popfit::{
    Arm, Closure, Continuum, CurveFitter, CurveModel, Curves, Device, Error, Estimator, Formula,
    LabelSettings, LineSpread, ModelFile, Spectra, SpectralFitter, SpectralModel,
    SpectralModelBuilder, VelocityScan,
};
use popfit_testing::tiny::{self, linear, wave};

/// Asserts that the error names this argument.
#[track_caller]
fn assert_argument(argument: &str, error: Error) {
    assert_eq!(error.argument(), Some(argument), "{error}");
}

#[test]
fn errors_name_the_wrong_array_of_spectra() {
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
    assert_argument("flux", arm(7, 6, 6, grid()).unwrap_err());
    assert_argument("ivar", arm(6, 5, 6, grid()).unwrap_err());
    assert_argument("mask", arm(6, 6, 5, grid()).unwrap_err());
    assert_argument("wavelength", arm(6, 6, 6, vec![4000.0; 2]).unwrap_err());
    assert_argument("wavelength", arm(6, 6, 6, vec![4000.0; 3]).unwrap_err());
    let valid_arm = || arm(6, 6, 6, grid()).unwrap();
    assert_argument(
        "resolution",
        valid_arm()
            .with_resolution(Resolution {
                diagonals: 2,
                values: vec![1.0; 12].into(),
            })
            .unwrap_err(),
    );
    assert_argument(
        "arms",
        Spectra::from_arms(vec![valid_arm(), valid_arm()], None).unwrap_err(),
    );
    assert_argument("arms", Spectra::from_arms(Vec::new(), None).unwrap_err());
    assert_argument(
        "ids",
        Spectra::from_arms(vec![valid_arm()], Some(Ids::Integer(vec![1]))).unwrap_err(),
    );
}

#[test]
fn errors_of_spectral_fits_name_the_argument() {
    let emulator = linear(&["a"], wave);
    let spectra = tiny::spectra(&emulator, &[0.1], 0.01);
    let fitter = SpectralFitter::new(tiny::model(emulator, 0.0), Device::cpu());
    assert_argument("starts", fitter.fit_from(&spectra, &[1.0; 7]).unwrap_err());
    assert_argument(
        "batch_size",
        fitter.clone().batch_size(0).fit(&spectra).unwrap_err(),
    );
    assert_argument(
        "velocity_scan",
        fitter
            .clone()
            .velocity_scan(VelocityScan::Fixed)
            .fit(&spectra)
            .unwrap_err(),
    );
    // Two invalid settings are not one argument.
    assert_eq!(
        fitter
            .batch_size(0)
            .starts(0)
            .fit(&spectra)
            .unwrap_err()
            .argument(),
        None
    );
    assert_argument("device", "cuda".parse::<Device>().unwrap_err());
}

#[test]
fn errors_of_curve_fits_name_the_argument() {
    let x = || vec![0.0, 1.0, 2.0];
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu());
    let fit_error = |curves: Curves| fitter.fit(&curves).unwrap_err();
    assert_argument(
        "starts",
        fit_error(Curves::on_common_grid(x(), vec![1.0; 3], vec![1.0; 3])),
    );
    assert_argument(
        "y",
        fit_error(Curves::on_common_grid(x(), vec![1.0; 4], vec![1.0; 2])),
    );
    let curves = || Curves::on_common_grid(x(), vec![1.0; 3], vec![1.0; 2]);
    assert_argument("sigma", fit_error(curves().sigma(vec![1.0; 2])));
    assert_argument("mask", fit_error(curves().mask(vec![false; 2])));
    assert_argument("lower", fit_error(curves().bounds(vec![0.0], vec![1.0; 2])));
    let counts = fitter.clone().estimator(Estimator::Poisson);
    assert_argument(
        "sigma",
        counts.fit(&curves().sigma(vec![1.0; 3])).unwrap_err(),
    );
    let fits = fitter.fit(&curves()).unwrap();
    assert_argument(
        "sigmas",
        fitter
            .confidence_intervals(&curves(), &fits, &[], &[-1.0])
            .unwrap_err(),
    );
    assert_argument(
        "fits",
        fitter
            .confidence_intervals(&curves(), &[], &[], &[])
            .unwrap_err(),
    );
    assert_argument("formula", Formula::parse("a*exq(x)").unwrap_err());
    assert_argument(
        "parameters",
        Closure::new(&["x"], &["a", "a"], |_, _, _| ()).unwrap_err(),
    );
}

#[test]
fn errors_of_models_name_the_setting() {
    let build = |change: fn(SpectralModelBuilder) -> SpectralModelBuilder| {
        change(SpectralModel::builder().add_arm(Arm::new("b", linear(&["a"], wave))))
            .build()
            .unwrap_err()
    };
    assert_argument(
        "labels",
        build(|model| model.label("b", LabelSettings::default().start(0.0))),
    );
    assert_argument(
        "labels.a",
        build(|model| model.label("a", LabelSettings::default().start(f64::NAN))),
    );
    assert_argument(
        "labels.a",
        build(|model| model.label("a", LabelSettings::default().prior(0.0, -1.0))),
    );
    assert_argument("velocity", build(|model| model.fixed_velocity(1e6)));
    assert_argument("vsini", build(|model| model.vsini(-1.0..=2.0)));
    assert_argument(
        "continuum.terms",
        build(|model| model.continuum(Continuum::rbf(1000))),
    );
    assert_argument(
        "arm.name",
        build(|model| model.add_arm(Arm::new("b", linear(&["a"], wave)))),
    );
    assert_argument(
        "arm.line_spread",
        build(|model| {
            model.add_arm(
                Arm::new("r", linear(&["a"], wave)).line_spread(LineSpread::ResolvingPower(-1.0)),
            )
        }),
    );
    assert_argument(
        "names",
        linear(&["a"], wave).with_label_names(&[]).unwrap_err(),
    );
    assert_argument("axes", CurveModel::spline(&[], &[]).unwrap_err());
    let parse = |text: &str| ModelFile::from_text("m.toml", text).unwrap_err();
    assert_argument(
        "labels.a.strat",
        parse("[[arm]]\nname = \"b\"\nemulator = \"e\"\n[labels.a]\nstrat = 1.0\n"),
    );
    assert_argument("arm[1].emulator", parse("[[arm]]\nname = \"b\"\n"));
    assert_eq!(parse("[[arm]\n").argument(), None);
}

#[test]
fn errors_of_files_and_devices_name_no_argument() {
    for error in [
        Error::NoAdapter("none".into()),
        Spectra::open("/none.npz").unwrap_err(),
    ] {
        assert_eq!(error.argument(), None, "{error}");
    }
}
