use super::*;

/// Gpufit's models: its name, ours, and the places of its parameters in its documentation (Gpufit 1.2, "Fit model
/// functions").
const GPUFIT: [(&str, &str, &[&str]); 8] = [
    (
        "GAUSS_1D",
        "gauss1d",
        &["amplitude", "center", "width", "offset"],
    ),
    (
        "GAUSS_2D",
        "gauss2d",
        &["amplitude", "center x", "center y", "width", "offset"],
    ),
    (
        "GAUSS_2D_ELLIPTIC",
        "gauss2d_elliptic",
        &[
            "amplitude",
            "center x",
            "center y",
            "width x",
            "width y",
            "offset",
        ],
    ),
    (
        "GAUSS_2D_ROTATED",
        "gauss2d_rotated",
        &[
            "amplitude",
            "center x",
            "center y",
            "width x",
            "width y",
            "offset",
            "rotation angle",
        ],
    ),
    (
        "CAUCHY_2D_ELLIPTIC",
        "cauchy2d_elliptic",
        &[
            "amplitude",
            "center x",
            "center y",
            "width x",
            "width y",
            "offset",
        ],
    ),
    ("LINEAR_1D", "linear1d", &["offset", "slope"]),
    (
        "FLETCHER_POWELL_HELIX",
        "fletcher_powell_helix",
        &["p1", "p2", "p3"],
    ),
    ("BROWN_DENNIS", "brown_dennis", &["p1", "p2", "p3", "p4"]),
];

fn gpufit_name(parameter: &str) -> &str {
    match parameter {
        "a" => "amplitude",
        "m" => "center",
        "x0" => "center x",
        "y0" => "center y",
        "s" => "width",
        "sx" => "width x",
        "sy" => "width y",
        "c" => "offset",
        "r" => "rotation angle",
        name => name,
    }
}

#[test]
fn parameters_have_gpufits_order() {
    for (gpufit, name, parameters) in GPUFIT {
        let formula = Formula::builtin(name).unwrap();
        assert_eq!(
            formula
                .parameters()
                .iter()
                .map(|p| gpufit_name(p))
                .collect::<Vec<_>>(),
            parameters,
            "{gpufit}"
        );
    }
}

/// Every line of the table in the documentation has the name, formula, parameters and Gpufit's name of the source.
#[test]
fn table_in_the_docs_agrees_with_the_source() {
    let lines = include_str!("../builtin.md")
        .lines()
        .filter(|line| line.starts_with("| `"));
    let rows: Vec<Vec<String>> = lines
        .map(|line| line.split('|').map(|c| c.trim().replace('`', "")).collect())
        .collect();
    assert_eq!(rows.len(), BUILTINS.len() + 1);
    for (row, builtin) in rows.iter().zip(&BUILTINS) {
        let gpufit = GPUFIT
            .iter()
            .find(|model| model.1 == builtin.name)
            .map_or("", |model| model.0);
        let words: Vec<&str> = builtin.text.split_whitespace().collect();
        let expected = [
            builtin.name,
            &words.join(" "),
            &builtin.parameters.join(", "),
            gpufit,
        ];
        assert_eq!(row[1..5], expected);
    }
    let cubic = Formula::builtin("polynomial(3)").unwrap();
    assert_eq!(
        (
            rows[BUILTINS.len()][1].as_str(),
            cubic.parameters().join(", ")
        ),
        ("polynomial(n)", "c0, c1, c2, c3".into())
    );
}

/// Model, parameters, and pairs of x and value, by another program.
type Reference = (&'static str, &'static [f64], &'static [(f64, f64)]);

/// Values of mpmath 1.4.1 at 40 digits.
const MPMATH: [Reference; 9] = [
    (
        "emg",
        &[2.0, 1.0, 0.5, 0.9, 0.0],
        &[
            (0.25, 0.118_809_232_806_677_66),
            (1.5, 0.999_239_663_449_842_6),
            (3.0, 0.280_921_587_565_437),
        ],
    ),
    (
        "emg",
        &[2.0, 1.0, 0.5, 0.9, 0.0],
        &[
            (-12.0, 5.387_578_329_401_498_5e-149),
            (400.0, 7.526_410_977_620_104e-193),
        ],
    ),
    (
        "emg",
        &[2.0, 1.0, 0.5, -0.9, 0.0],
        &[
            (0.25, 0.932_565_278_442_889_1),
            (-300.0, 1.467_004_730_207_466_5e-145),
        ],
    ),
    (
        "emg",
        &[2.0, 1.0, 0.5, 1e-4, 0.0],
        &[(1.5, 0.968_076_474_640_699_5)],
    ),
    (
        "emg",
        &[2.0, 1.0, 1e-3, 0.9, 0.0],
        &[
            (1.5, 1.275_008_388_680_711_8),
            (40.0, 3.367_907_888_733_594_7e-19),
        ],
    ),
    (
        "skewed_gauss",
        &[2.0, 1.0, 0.7, 1.5, 0.0],
        &[
            (-2.0, 2.645_797_249_821_729e-14),
            (0.25, 0.121_694_288_604_444_8),
        ],
    ),
    (
        "skewed_gauss",
        &[2.0, 1.0, 0.7, 1.5, 0.0],
        &[
            (1.5, 2.659_278_052_160_914),
            (3.0, 0.067_518_921_650_948_43),
        ],
    ),
    (
        "damped_sine",
        &[2.0, 0.4, 0.3, 0.5, 1.0],
        &[
            (0.0, 1.958_851_077_208_406),
            (0.25, 2.494_041_175_154_554),
            (3.0, 0.922_914_353_766_450_7),
        ],
    ),
    (
        "biexponential",
        &[2.0, 0.4, 3.0, 1.5, 1.0],
        &[
            (0.0, 6.0),
            (0.25, 4.871_542_672_444_836),
            (3.0, 1.635_715_413_439_131_2),
        ],
    ),
];

/// Values of lmfit 1.3.4 (`step`, and `breit_wigner`, whose width is twice that of `fano`) and of astropy 8.0.2
/// (`Moffat1D` and `Sine1D`).
const LMFIT_AND_ASTROPY: [Reference; 5] = [
    (
        "fano",
        &[2.0, 1.0, 0.5, 1.7, 0.0],
        &[
            (0.25, 0.024_615_384_615_384_657),
            (1.5, 7.290_000_000_000_001),
            (3.0, 3.822_352_941_176_471),
        ],
    ),
    (
        "step_linear",
        &[2.0, 1.0, 0.7, 0.0],
        &[(0.25, 0.0), (1.2, 1.571_428_571_428_571_2), (3.0, 2.0)],
    ),
    (
        "step_arctan",
        &[2.0, 1.0, 0.7, 0.0],
        &[
            (0.25, 0.478_056_288_767_978),
            (1.2, 1.177_171_065_565_809_4),
            (3.0, 1.785_666_153_120_125_2),
        ],
    ),
    (
        "moffat",
        &[2.0, 1.0, 0.7, 2.5, 0.0],
        &[
            (0.25, 0.295_777_364_219_680_37),
            (1.5, 0.713_577_087_058_937_5),
            (3.0, 0.007_868_724_557_637_935),
        ],
    ),
    (
        "sine",
        &[2.0, 0.3, 0.5, 0.0],
        &[
            (0.0, 0.958_851_077_208_406),
            (0.25, 1.651_170_857_188_378_3),
            (3.0, -0.255_933_358_560_092_2),
        ],
    ),
];

/// Values of scipy 1.17.1's distributions: `norm`, `logistic`, `gumbel_r`, `fisk` and `weibull_min`.
const SCIPY: [Reference; 7] = [
    (
        "step_erf",
        &[2.0, 1.0, 0.7, 0.0],
        &[
            (0.25, 0.283_976_771_750_911_74),
            (1.2, 1.224_903_037_804_015_3),
            (3.0, 1.995_725_266_039_827_5),
        ],
    ),
    (
        "step_logistic",
        &[2.0, 1.0, 0.7, 0.0],
        &[
            (0.25, 0.510_263_008_662_633_3),
            (1.2, 1.141_893_193_766_932_5),
            (3.0, 1.891_373_467_734_718_7),
        ],
    ),
    (
        "logistic",
        &[2.0, 1.5, 1.0],
        &[
            (-20.0, 4.175_935_823_291_78e-14),
            (0.25, 0.490_170_026_264_743_43),
            (3.0, 1.905_148_253_644_866_7),
        ],
    ),
    (
        "gompertz",
        &[2.0, 1.5, 1.0],
        &[
            (0.25, 0.091_898_583_028_939_45),
            (1.0, 0.735_758_882_342_884_7),
            (3.0, 1.902_863_985_800_906_9),
        ],
    ),
    (
        "hill",
        &[2.0, 1.3, 1.7],
        &[
            (1e-6, 8.078_417_547_899_676e-11),
            (0.25, 0.114_354_774_448_592_96),
            (1e6, 1.999_999_999_802_878_6),
        ],
    ),
    (
        "logistic4",
        &[2.0, 1.3, -1.7, 0.5],
        &[
            (0.0, 2.5),
            (0.25, 2.385_645_225_551_407),
            (3.0, 0.888_814_974_584_721_8),
        ],
    ),
    (
        "stretched_exponential",
        &[2.0, 0.8, 0.6, 0.0],
        &[
            (0.0, 2.0),
            (0.25, 1.215_934_865_274_628_5),
            (3.0, 0.219_371_726_228_937_8),
        ],
    ),
];

/// Values with b of scipy 1.17.1's `gammaincinv(2*n, 0.5)`, which the series meets to 1e-6 for n from 4 on.
const SERSIC: [Reference; 2] = [
    (
        "sersic",
        &[2.0, 1.3, 4.0],
        &[
            (0.0, 4_282.947_085_769_420_5),
            (0.25, 26.674_361_122_014_634),
            (3.0, 0.336_176_960_424_492),
        ],
    ),
    (
        "sersic",
        &[2.0, 1.3, 6.0],
        &[
            (0.0, 233633.828_586_155_02),
            (0.25, 33.001_905_822_705_83),
            (3.0, 0.349_269_430_311_718_3),
        ],
    ),
];

#[test]
fn values_agree_with_other_programs() {
    let exact = MPMATH
        .iter()
        .chain(&LMFIT_AND_ASTROPY)
        .chain(&SCIPY)
        .map(|reference| (reference, 1e-12));
    for ((name, parameters, points), tolerance) in
        exact.chain(SERSIC.iter().map(|reference| (reference, 1e-6)))
    {
        let formula = Formula::builtin(name).unwrap();
        for (x, value) in *points {
            let computed = formula.value(&[*x], parameters).unwrap();
            assert!(
                (computed - value).abs() <= tolerance * value.abs(),
                "{name} at {x}: {computed} {value}"
            );
        }
    }
}

/// Overflows and powers of 0 on the way do not reach values and derivatives.
#[test]
fn values_and_derivatives_are_finite_far_away_and_at_zero() {
    for (name, parameters) in [
        ("emg", vec![2.0, 1.0, 0.5, 0.9, 0.1]),
        ("emg", vec![2.0, 1.0, 1e-3, -1e-3, 0.1]),
        ("skewed_gauss", vec![2.0, 1.0, 0.5, -3.0, 0.1]),
        ("step_erf", vec![2.0, 1.0, 0.5, 0.1]),
        ("step_logistic", vec![2.0, 1.0, 0.5, 0.1]),
        ("logistic", vec![2.0, 0.7, 1.0]),
        ("gompertz", vec![2.0, 0.7, 1.0]),
        ("hill", vec![2.0, 0.7, 0.5]),
        ("hill", vec![2.0, 0.7, -0.5]),
        ("logistic4", vec![2.0, 0.7, 9.0, 0.1]),
        ("stretched_exponential", vec![2.0, 0.7, 0.5, 0.1]),
        ("sersic", vec![2.0, 0.7, 4.0]),
    ] {
        let formula = Formula::builtin(name).unwrap();
        for x in [0.0, 1.0, 1e4, 1e8] {
            let mirrored = if formula.text().contains("x == 0") {
                x
            } else {
                -x
            };
            for x in [x, mirrored] {
                let rows = formula.linearise(&[x], &parameters).unwrap();
                assert!(
                    rows.iter().all(|row| row.is_finite()),
                    "{name} at {x}: {rows:?}"
                );
            }
        }
    }
}
