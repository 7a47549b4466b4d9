//! Messages of `popfit check` about models that are allowed but seldom meant, and those of `popfit fit` about the same
//! models.

use std::path::Path;
use std::process::{Command, Output};

use super::popfit_in as popfit;
use popfit_testing::memory::read_process_memory;
use popfit_testing::tiny::{self, PIXELS, linear_layer, network_file, wave, wavelength};
use popfit_testing::{bools, f32s, f64s, file, npy, npz};

/// Returns the text that `popfit check` prints about a network with the labels `a` and `b`, trained in ±10.
#[track_caller]
fn check(network: &[u8], more: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "net.safetensors", network);
    let model = format!("[[arm]]\nname = \"b\"\nemulator = \"net.safetensors\"\n{more}");
    file(folder.path(), "model.toml", model.as_bytes());
    let output = popfit(folder.path(), &["check", "model.toml"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

fn warnings(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| line.starts_with("warning: "))
        .collect()
}

#[test]
fn a_sound_model_gets_no_warning() {
    let network = network_file(&["a", "b"], "relu", &[linear_layer(2, wave)]);
    for more in [
        "",
        "[labels.a]\nbounds = [-10.0, 10.0]\n[labels.b]\nfixed = 10.0\n",
    ] {
        let text = check(&network, more);
        assert!(
            warnings(&text).is_empty() && text.contains("relu") && !text.contains("assumed"),
            "{text}"
        );
    }
}

#[test]
fn a_label_without_effect_is_told() {
    let idle = |weight: f32| {
        linear_layer(2, move |l, j| {
            if l == 0 {
                wave(0, j)
            } else {
                weight * wave(1, j)
            }
        })
    };
    // none, and one that is lost in the rounding of the templates
    for weight in [0.0, 1e-9] {
        let network = network_file(&["a", "b"], "relu", &[idle(weight)]);
        let text = check(&network, "");
        let [warning] = warnings(&text)[..] else {
            panic!("{text}")
        };
        assert!(
            warning.contains("label b has no effect on the template")
                && warning.contains("[labels.b] fixed")
        );
        assert!(
            text.lines()
                .any(|line| line.starts_with("b ") && line.ends_with("no effect")),
            "{text}"
        );
        // where it is held it harms nobody
        assert!(warnings(&check(&network, "[labels.b]\nfixed = 0.0\n")).is_empty());
    }
    // a small effect is one
    assert!(
        warnings(&check(
            &network_file(&["a", "b"], "relu", &[idle(1e-3)]),
            ""
        ))
        .is_empty()
    );
    // and one that another arm sees
    let folder = tempfile::tempdir().unwrap();
    file(
        folder.path(),
        "idle.safetensors",
        &network_file(&["a", "b"], "relu", &[idle(0.0)]),
    );
    file(
        folder.path(),
        "net.safetensors",
        &network_file(&["a", "b"], "relu", &[linear_layer(2, wave)]),
    );
    let arm = |name: &str, file: &str| {
        format!("[[arm]]\nname = \"{name}\"\nemulator = \"{file}.safetensors\"\n")
    };
    file(
        folder.path(),
        "model.toml",
        (arm("b", "idle") + &arm("r", "net")).as_bytes(),
    );
    let text = String::from_utf8(popfit(folder.path(), &["check", "model.toml"]).stdout).unwrap();
    assert!(
        text.contains("pass") && warnings(&text).is_empty(),
        "{text}"
    );
}

#[test]
fn bounds_beyond_the_training_range_are_told() {
    let network = network_file(&["a", "b"], "relu", &[linear_layer(2, wave)]);
    let cases = [
        (
            "[labels.a]\nbounds = [-12.0, 5.0]\n",
            "label a: its bounds are -12 to 5, but the emulator of arm \"b\" was trained from -10 to 10",
        ),
        (
            "[labels.b]\nbounds = [0.0, 10.5]\n",
            "label b: its bounds are 0 to 10.5",
        ),
        ("[labels.b]\nfixed = 11.0\n", "label b: it is held at 11"),
        (
            "[labels.b]\ntied = \"1.0 - 2.0*a\"\n",
            "label b: it is tied, and may reach -19 to 21",
        ),
    ];
    for (more, said) in cases {
        let text = check(&network, more);
        let [warning] = warnings(&text)[..] else {
            panic!("{text}")
        };
        assert!(
            warning.contains(said) && warning.contains("extrapolates"),
            "{warning}"
        );
    }
}

/// Two hidden layers of three, as The Payne stores them.
fn payne(folder: &Path) {
    let ramp = |count: usize, pace: f32| {
        (0..count)
            .map(|k| (pace * k as f32).sin())
            .collect::<Vec<f32>>()
    };
    let arrays = [
        ("w_array_0", f32s(&[3, 2], &ramp(6, 1.7))),
        ("w_array_1", f32s(&[3, 3], &ramp(9, 0.9))),
        ("w_array_2", f32s(&[PIXELS, 3], &ramp(3 * PIXELS, 2.3))),
        ("b_array_0", f32s(&[3], &ramp(3, 1.1))),
        ("b_array_1", f32s(&[3], &ramp(3, 0.4))),
        ("b_array_2", f32s(&[PIXELS], &[2.0; PIXELS])),
        ("x_min", f64s(&[2], &[4000.0, 1.0])),
        ("x_max", f64s(&[2], &[7000.0, 5.0])),
    ];
    file(folder, "payne.npz", &npz(&arrays, false));
    file(
        folder,
        "grid.npz",
        &npz(&[("wavelength", f64s(&[PIXELS], &wavelength()))], false),
    );
    let flux: Vec<f64> = (0..PIXELS)
        .map(|j| 2.0 + 0.1 * (j as f64 * 0.3).sin())
        .collect();
    let spectra = [
        ("b_wavelength", f64s(&[PIXELS], &wavelength())),
        ("b_flux", f64s(&[1, PIXELS], &flux)),
        ("b_ivar", f64s(&[1, PIXELS], &[1e4; PIXELS])),
    ];
    file(folder, "spectra.npz", &npz(&spectra, false));
}

/// The Payne's files do not say it: what is assumed is told, what is named is taken.
#[test]
fn the_activation_is_told_where_it_is_assumed() {
    let folder = tempfile::tempdir().unwrap();
    payne(folder.path());
    let model = |activation: &str| {
        let arm = "[[arm]]\nname = \"b\"\nemulator = \"payne.npz\"\nwavelength = \"grid.npz\"\n";
        let rest = "labels = [\"teff\", \"logg\"]\n[continuum]\nkind = \"none\"\n";
        file(
            folder.path(),
            "model.toml",
            format!("{arm}{activation}{rest}").as_bytes(),
        );
    };
    let printed = |arguments: &[&str]| {
        let output = popfit(folder.path(), arguments);
        assert!(
            [Some(0), Some(3)].contains(&output.status.code()),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let both = [output.stdout, output.stderr].concat();
        String::from_utf8(both).unwrap()
    };
    let fit = |out: &str| {
        printed(&[
            "fit",
            "model.toml",
            "spectra.npz",
            "-o",
            out,
            "--device",
            "cpu",
        ])
    };
    let said = "arm \"b\": payne.npz does not say its activation, and leaky_relu is assumed";
    model("");
    let text = printed(&["check", "model.toml"]);
    assert!(
        text.contains("leaky_relu (assumed)") && text.contains(&format!("warning: {said}")),
        "{text}"
    );
    assert!(text.contains("activation = \"sigmoid\""), "{text}");
    let text = fit("assumed.csv");
    assert!(text.contains(&format!("popfit: {said}")), "{text}");
    // named, it is another model
    let results = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    for (activation, same) in [("leaky_relu", true), ("sigmoid", false)] {
        model(&format!("activation = \"{activation}\"\n"));
        let text = printed(&["check", "model.toml"]);
        assert!(
            text.contains(activation) && !text.contains("assumed") && warnings(&text).is_empty(),
            "{text}"
        );
        let out = format!("{activation}.csv");
        assert!(!fit(&out).contains("assumed"));
        assert_eq!(
            results(&out) == results("assumed.csv"),
            same,
            "{activation}"
        );
    }
    // a file that says it is believed
    let network = network_file(&["a", "b"], "silu", &[linear_layer(2, wave)]);
    file(folder.path(), "net.safetensors", &network);
    let arm = "[[arm]]\nname = \"b\"\nemulator = \"net.safetensors\"\nactivation = \"tanh\"\n";
    file(folder.path(), "model.toml", arm.as_bytes());
    let refused = popfit(folder.path(), &["check", "model.toml"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(
        text.contains("model.toml") && text.contains("its activation is silu, not tanh"),
        "{text}"
    );
}

/// With spectra, the model is tried on the first of them, and nothing is written.
#[test]
fn a_dry_run_tries_the_model_on_spectra() {
    let folder = tempfile::tempdir().unwrap();
    let data = popfit_testing::root().join("data");
    let [model, spectra] =
        ["model.toml", "spectra.npz"].map(|name| data.join(name).display().to_string());
    let output = popfit(
        folder.path(),
        &["check", &model, &spectra, "--device", "cpu"],
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for said in [
        "4002.00–5498.00  3986.70–5517.93  4002.00–5498.00  3741 of 3741",
        "the table would have 36 columns:\n  id, file, row, status,",
        "correlation_feh_alpha\n",
        "spectra: 64, and all of them would be fitted",
        "fits: 64 of the first 64 converge; all 64 would take about",
        "on cpu",
    ] {
        assert!(text.contains(said), "no {said:?} in {text}");
    }
    let columns = text
        .lines()
        .skip_while(|line| !line.starts_with("the table would have"))
        .skip(1);
    let columns: Vec<&str> = columns.take_while(|line| line.starts_with("  ")).collect();
    assert!(
        columns.len() > 3 && columns.iter().all(|line| line.chars().count() <= 103),
        "{columns:?}"
    );
    let names = columns
        .iter()
        .flat_map(|line| line.split(','))
        .filter(|name| !name.trim().is_empty());
    assert_eq!(names.count(), 36, "{columns:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // what a run would refuse, it refuses as a run would: the DESI arms are not those of the model
    let desi = popfit_testing::root().join("tests/data/desi/coadd-synth-505.fits.gz");
    let with_three = folder.path().join("three.toml");
    let arms = ["b", "r"].map(|arm| {
        format!(
            "[[arm]]\nname = \"{arm}\"\nemulator = '{}'\n",
            data.join("emulator.safetensors").display()
        )
    });
    std::fs::write(&with_three, arms.concat()).unwrap();
    let refused = popfit(
        folder.path(),
        &["check", "three.toml", &spectra, "--device", "cpu"],
    );
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("no arrays for arm \"b\""),
        "{refused:?}"
    );
    let kept = popfit(
        folder.path(),
        &[
            "check",
            "three.toml",
            desi.to_str().unwrap(),
            "--device",
            "cpu",
            "--arms",
            "b",
        ],
    );
    let text = String::from_utf8_lossy(&kept.stdout).into_owned();
    assert!(
        text.contains("of the first 24 converge") && !text.contains("fitted without it"),
        "{text}"
    );
    // the network ends too near to these spectra for the pixels of its spline
    assert!(
        text.contains("arm b: the network ends inside the data.")
            && text.contains("up to 3 of 1914"),
        "{text}"
    );
}

/// Prints what `popfit check` says of the DESI spectra, with more options.
fn check_desi(folder: &Path, model: &str, files: usize, options: &[&str]) -> Output {
    let desi = popfit_testing::root().join("tests/data/desi");
    let arm = |name: &str| {
        format!(
            "[[arm]]\nname = \"{name}\"\nemulator = '{}'\n",
            desi.join(format!("{name}.safetensors")).display()
        )
    };
    file(
        folder,
        "desi.toml",
        format!("{}{model}", ["b", "r", "z"].map(arm).concat()).as_bytes(),
    );
    let coadd = desi.join("coadd-synth-505.fits.gz").display().to_string();
    let spectra = vec![coadd.as_str(); files];
    popfit(
        folder,
        &[
            &["check", "desi.toml"],
            &spectra[..],
            &["--device", "cpu"],
            options,
        ]
        .concat(),
    )
}

/// The options that select spectra are blamed in their order, and an arm's range and masks narrow what is used.
#[test]
fn a_dry_run_says_what_is_selected_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let coadd = popfit::Spectra::open(
        popfit_testing::root().join("tests/data/desi/coadd-synth-505.fits.gz"),
    )
    .unwrap();
    let ids: Vec<String> = (0..10).map(|k| coadd.ids.text(k)).collect();
    let best = |k: &usize| {
        coadd
            .arms
            .iter()
            .map(|arm| arm.signal_to_noise(*k))
            .fold(0.0, f64::max)
    };
    let mut ratios: Vec<f64> = (0..10).map(|k| best(&k)).collect();
    ratios.sort_by(f64::total_cmp);
    let least = format!("--min-sn={}", (ratios[3] + ratios[4]) / 2.0);
    let mask = "[spectra]\nmask = [[3000.0, 4000.0], [7000.0, 9900.0]]\n[velocity]\nrange = [-500.0, 500.0]\n";
    let list = format!("--target-id={}", ids.join(","));
    let output = check_desi(folder.path(), mask, 1, &[&list, &least, "--arms", "b,r"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said =
        "spectra: 6 of 24 would be fitted; --target-id leaves out 14, --min-sn leaves out 4\n";
    assert!(
        text.contains(said),
        "no {said:?} in {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // the grid has steps of 0.8 Å
    for used in [
        "4000.80–5800.00  2250 of 2751",
        "5760.00–6999.20  1550 of 2326",
    ] {
        assert!(text.contains(used), "no {used:?} in {text}");
    }
}

/// The files that look alike share a row.
#[test]
fn a_dry_run_of_many_files_has_few_rows() {
    let folder = tempfile::tempdir().unwrap();
    let output = check_desi(
        folder.path(),
        "[velocity]\nrange = [-500.0, 500.0]\n",
        3,
        &[],
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        text.matches("coadd-synth-505.fits.gz and 2 more").count(),
        3,
        "{text}"
    );
    assert!(
        text.contains("spectra: 72, and all of them would be fitted"),
        "{text}"
    );
}

/// The memory that a check reports is that of a run, within a factor of 1.5.
#[cfg(target_os = "linux")]
#[test]
fn the_memory_of_a_check_is_that_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let data = popfit_testing::root().join("data");
    let [model, spectra] =
        ["model.toml", "spectra.npz"].map(|name| data.join(name).display().to_string());
    let velocity = "[velocity]\nrange = [-500.0, 500.0]\n";
    let desi = check_desi(folder.path(), velocity, 8, &[]);
    let coadd = popfit_testing::root()
        .join("tests/data/desi/coadd-synth-505.fits.gz")
        .display()
        .to_string();
    let demo = popfit(
        folder.path(),
        &[
            &["check", &model][..],
            &[spectra.as_str(); 8],
            &["--device", "cpu"],
        ]
        .concat(),
    );
    for (check, model, spectra) in [(demo, model.as_str(), spectra), (desi, "desi.toml", coadd)] {
        let text = String::from_utf8_lossy(&check.stdout).into_owned();
        let about = text
            .lines()
            .find_map(|line| line.strip_prefix("memory: "))
            .expect("a line about memory");
        let checked: f64 = about.split(' ').next().unwrap().parse().unwrap();
        let peak = peak_of_a_fit(folder.path(), model, &spectra);
        assert!(
            (peak / 1.5..peak * 1.5).contains(&checked),
            "{about}, but a run has taken {peak} MiB"
        );
    }
}

/// MiB that a run of eight times a file has had resident at once.
#[cfg(target_os = "linux")]
fn peak_of_a_fit(folder: &Path, model: &str, spectra: &str) -> f64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_popfit"));
    command
        .current_dir(folder)
        .args(["fit", model])
        .args([spectra; 8]);
    command.args(["--device", "cpu", "--quiet", "--overwrite", "-o", "out.csv"]);
    let mut child = command.spawn().unwrap();
    let process = child.id().to_string();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        // the system keeps the peak
        peak = peak.max(read_process_memory(&process, "VmHWM").unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    peak as f64 / f64::from(1 << 20)
}

/// A file without weights is told which arrays it has.
#[test]
fn a_file_without_weights_is_told_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let arrays = [
        ("wavelength", f64s(&[PIXELS], &wavelength())),
        ("flux", f64s(&[1, PIXELS], &[1.0; PIXELS])),
        ("error", f64s(&[1], &[1.0])),
    ];
    file(folder.path(), "spectra.npz", &npz(&arrays, false));
    let model = popfit_testing::root()
        .join("data/model.toml")
        .display()
        .to_string();
    let refused = popfit(folder.path(), &["check", &model, "spectra.npz"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    let words = "spectra.npz: neither `ivar` nor `sigma` is in it (found: wavelength, flux, error)";
    assert!(
        refused.status.code() == Some(2) && said.contains(words),
        "{said}"
    );
}

#[test]
fn a_wrong_file_or_device_is_told_before_the_model_is_described() {
    let folder = tempfile::tempdir().unwrap();
    file(
        folder.path(),
        "net.safetensors",
        &network_file(&["a", "b"], "relu", &[linear_layer(2, wave)]),
    );
    file(
        folder.path(),
        "model.toml",
        b"[[arm]]\nname = \"b\"\nemulator = \"net.safetensors\"\n",
    );
    for (arguments, message) in [
        (
            ["none.npz", "--device=cpu"],
            "none.npz: this file does not exist",
        ),
        (["none.npz", "--device=gp"], "gp"),
    ] {
        let output = popfit(
            folder.path(),
            &[&["check", "model.toml"][..], &arguments].concat(),
        );
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(output.stdout.is_empty() && told.contains(message), "{told}");
    }
}

/// Bits of masks that widen errors: how many pixels they widen, and which files have none.
#[test]
fn widened_errors_are_counted_and_masks_without_bits_are_told() {
    let folder = tempfile::tempdir().unwrap();
    file(
        folder.path(),
        "net.safetensors",
        &network_file(&["a", "b"], "relu", &[linear_layer(2, wave)]),
    );
    let model =
        "[[arm]]\nname = \"b\"\nemulator = \"net.safetensors\"\n[continuum]\nkind = \"none\"\n";
    let widen = format!("{model}[spectra]\nwiden = {{ bits = [1, 4], factor = 3.0 }}\n");
    file(folder.path(), "model.toml", widen.as_bytes());
    let spectra = tiny::spectra(
        &tiny::linear(&["a", "b"], wave),
        &[1.0, -2.0, 3.0, 0.5],
        0.01,
    );
    let shape = [2, PIXELS];
    // of each ten pixels, two are widened and one is masked
    let bits = |k: usize| [0, 2, 0, 0, 16, 0, 8, 0, 0, 0][k % 10];
    let masks = [
        (
            "bits.npz",
            npy(
                "|u1",
                &shape,
                &(0..2 * PIXELS).map(bits).collect::<Vec<u8>>(),
            ),
        ),
        ("flags.npz", bools(&shape, &[false; 2 * PIXELS])),
    ];
    for (name, mask) in masks {
        let arm = &spectra.arms[0];
        let arrays = [
            ("wavelength", f64s(&[PIXELS], &wavelength())),
            ("flux", f64s(&shape, &arm.flux.to_double())),
            ("ivar", f64s(&shape, &arm.ivar.to_double())),
            ("mask", mask),
        ];
        file(folder.path(), name, &npz(&arrays, true));
    }
    let run = |words: &[&str]| popfit(folder.path(), words);
    let output = run(&[
        "check",
        "model.toml",
        "bits.npz",
        "flags.npz",
        "--device",
        "cpu",
    ]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = popfit_testing::message(&output);
    let (all, masked, wide) = (
        4 * PIXELS,
        (0..2 * PIXELS).filter(|k| bits(*k) == 8).count(),
        26,
    );
    let said = format!(
        "those of {wide} of the {} pixels with a weight in the first 4 spectra",
        all - masked
    );
    assert!(text.contains(&said), "no {said:?} in {text}{error}");
    let note = "flags.npz, arm b: the mask has no bits";
    assert!(
        text.contains(&format!("note: {note}")) && !text.contains("bits.npz, arm b: the mask"),
        "{text}"
    );
    // the same in a run, whose table is drawn with its spectra
    let output = run(&[
        "fit",
        "model.toml",
        "bits.npz",
        "flags.npz",
        "-o",
        "out.fits",
        "--device",
        "cpu",
    ]);
    let error = popfit_testing::message(&output);
    assert!(
        output.status.success() && error.contains(&format!("popfit: {note}")),
        "{error}"
    );
    let output = run(&["report", "out.fits", "--spectra", "bits.npz", "flags.npz"]);
    assert!(
        output.status.success(),
        "{}",
        popfit_testing::message(&output)
    );
    let output = run(&[
        "fit",
        "model.toml",
        "flags.npz",
        "-o",
        "no.fits",
        "--device",
        "cpu",
    ]);
    let error = popfit_testing::message(&output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("flags.npz: errors are to be widened") && error.contains("spectra.widen"),
        "{error}"
    );
    assert!(!folder.path().join("no.fits").exists());
}
