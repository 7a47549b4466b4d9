//! A run in parts ends with the bytes of one run, whatever happens to its workers, and what is not whole is found.

mod damage;
mod faults;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use popfit_testing::{array, demo_file as data, f64s, i64s, message, npz};

/// Spectra of the demo's file.
const SPECTRA: usize = 64;

/// A folder with files of spectra, and what runs over them make.
struct Survey {
    folder: tempfile::TempDir,
    files: usize,
}

impl Survey {
    /// Makes a folder with a model file and so many files of the demo's spectra.
    fn new(files: usize) -> Survey {
        let folder = tempfile::tempdir().unwrap();
        for name in ["model.toml", "emulator.safetensors"] {
            std::fs::copy(data(name), folder.path().join(name)).unwrap();
        }
        for file in 0..files {
            std::fs::copy(data("spectra.npz"), folder.path().join(spectra(file))).unwrap();
        }
        Survey { folder, files }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command `popfit` in the survey's folder.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_popfit"));
        command.current_dir(self.folder.path()).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn succeed(&self, arguments: &[&str]) -> Output {
        let output = self.run(arguments);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{arguments:?}: {}",
            message(&output)
        );
        output
    }

    /// Makes a plan with these options.
    fn plan(&self, options: &[&str]) -> Output {
        let files: Vec<String> = (0..self.files).map(spectra).collect();
        let mut arguments = vec!["plan", "model.toml"];
        arguments.extend(files.iter().map(String::as_str));
        arguments.extend(["-o", "run"]);
        arguments.extend(options);
        self.succeed(&arguments)
    }

    /// Fits all files in one run into a table of this name.
    fn fit(&self, table: &str, options: &[&str]) {
        let files: Vec<String> = (0..self.files).map(spectra).collect();
        let mut arguments = vec!["fit", "model.toml"];
        arguments.extend(files.iter().map(String::as_str));
        arguments.extend(["-o", table, "--device", "cpu", "--quiet"]);
        arguments.extend(options);
        self.succeed(&arguments);
    }

    /// A worker that takes free parts.
    fn take(&self, options: &[&str]) -> Command {
        let mut arguments = vec!["fit", "--plan", "run", "--take", "--device", "cpu"];
        arguments.extend(options);
        self.command(&arguments)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Names of the parts that are there, in their order.
    fn parts(&self) -> Vec<String> {
        names(&self.path("run"))
            .into_iter()
            .filter(|name| name.starts_with("part-"))
            .collect()
    }

    /// Asserts that the merged table has the bytes of one run's.
    fn assert_merged_is(&self, one_run: &str) {
        let merged = format!("merged-{one_run}");
        self.succeed(&["merge", "run", "-o", &merged, "--overwrite"]);
        assert!(self.bytes(&merged) == self.bytes(one_run), "{merged}");
    }
}

/// Name of a file of spectra.
fn spectra(file: usize) -> String {
    format!("spectra-{file}.npz")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// For any number of parts, in any order, fitted more than once, by one thread or two, in each format.
#[test]
fn a_merged_table_has_the_bytes_of_one_run() {
    let survey = Survey::new(3);
    let options = ["--starts", "2", "--released-errors"];
    for table in ["one.parquet", "one.fits", "one.csv"] {
        survey.fit(table, &options);
    }
    for (parts, order) in [("1", "0"), ("3", "2,0,1"), ("5", "4,1,1,3,0,2")] {
        survey.plan(&[&["--parts", parts][..], &options].concat());
        let (first, rest) = order.split_once(',').unwrap_or((order, order));
        for (parts, threads) in [(first, "1"), (rest, "2")] {
            survey.succeed(&[
                "fit",
                "--plan",
                "run",
                "--part",
                parts,
                "--device",
                "cpu",
                "--threads",
                threads,
            ]);
        }
        assert_eq!(survey.parts().len().to_string(), parts);
        for table in ["one.parquet", "one.fits", "one.csv"] {
            survey.assert_merged_is(table);
        }
        let expected = format!("\"parts\":{parts},\"rows\":{}", 3 * SPECTRA);
        let success = String::from_utf8(survey.bytes("run/_SUCCESS")).unwrap();
        assert!(success.contains(&expected), "{success}");
        std::fs::remove_dir_all(survey.path("run")).unwrap();
    }
}

/// Parts are of objects where the spectra of one id are exposures, as the option or the model file says.
#[test]
fn plans_count_objects_whose_exposures_are_joined() {
    let survey = Survey::new(1);
    let ids: Vec<i64> = (0..SPECTRA as i64).map(|k| k % 20).collect();
    let mut arrays = vec![("id", i64s(&ids))];
    for name in ["wavelength", "flux", "ivar"] {
        let (shape, values) = array(&data("spectra.npz"), name);
        arrays.push((name, f64s(&shape, &values)));
    }
    std::fs::write(survey.path(&spectra(0)), npz(&arrays, true)).unwrap();
    let model = std::fs::read_to_string(survey.path("model.toml")).unwrap();
    let joining = format!("{model}\n[exposures]\nvelocity = \"each\"\n");
    let cases: [(&str, &[&str], &str); 4] = [
        (&model, &[], "spectra 64,"),
        (&model, &["--exposures", "join"], "spectra 20,"),
        (&joining, &[], "spectra 20,"),
        (&joining, &["--exposures", "separate"], "spectra 64,"),
    ];
    for (text, options, count) in cases {
        std::fs::write(survey.path("model.toml"), text).unwrap();
        let output = survey.plan(&[&["--parts", "3"], options].concat());
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains(count), "{options:?}: {printed}");
        // The plan keeps the model that its parts are fitted with.
        let manifest = popfit_cli::survey::Manifest::open(survey.path("run")).unwrap();
        let joins = manifest.model_text.contains("[exposures]");
        assert_eq!(joins, count == "spectra 20,", "{}", manifest.model_text);
        std::fs::remove_dir_all(survey.path("run")).unwrap();
    }
}

/// Spectra of one file share labels, whatever its batches, and those of two files do not. Parts would divide clusters.
#[test]
fn clusters_are_those_of_a_file_and_have_no_plan() {
    let survey = Survey::new(2);
    let clusters: Vec<i64> = (0..SPECTRA as i64).map(|k| k % 3 - 1).collect();
    let mut arrays = vec![("cluster", i64s(&clusters))];
    for name in ["wavelength", "flux", "ivar"] {
        let (shape, values) = array(&data("spectra.npz"), name);
        arrays.push((name, f64s(&shape, &values)));
    }
    for file in 0..2 {
        std::fs::write(survey.path(&spectra(file)), npz(&arrays, true)).unwrap();
    }
    let model = std::fs::read_to_string(survey.path("model.toml")).unwrap();
    let sharing = format!("{model}\n[shared]\ncolumn = \"cluster\"\nlabels = [\"alpha\"]\n");
    std::fs::write(survey.path("model.toml"), sharing).unwrap();
    survey.fit("one.csv", &[]);
    survey.fit("small.csv", &["--batch", "5"]);
    assert!(survey.bytes("one.csv") == survey.bytes("small.csv"));
    let (table, _) = popfit::FitTable::read(survey.path("one.csv")).unwrap();
    let members: Vec<Option<u64>> = table
        .to_rows()
        .iter()
        .map(|row| row.shared_members)
        .collect();
    for (k, members) in members.iter().enumerate() {
        let cluster = clusters[k % SPECTRA];
        let count = clusters.iter().filter(|&&other| other == cluster).count() as u64;
        assert_eq!(*members, Some(count).filter(|_| cluster >= 0), "{k}");
    }
    let arguments = [
        "plan",
        "model.toml",
        &spectra(0),
        "-o",
        "run",
        "--parts",
        "3",
    ];
    let output = survey.run(&arguments);
    let said = message(&output);
    assert!(
        output.status.code() == Some(2) && said.contains("would divide them"),
        "{said}"
    );
}

/// The parts alone are a table, too, and what is missing of them is noted.
#[test]
fn parts_are_read_as_one_table() {
    let survey = Survey::new(3);
    survey.fit("one.parquet", &[]);
    survey.plan(&["--parts", "3"]);
    let run = survey.path("run");
    assert!(
        popfit::low_level::TableReader::open(&run).is_err(),
        "nothing is there"
    );
    survey.succeed(&["fit", "--plan", "run", "--part", "2,0", "--device", "cpu"]);
    let mut some = popfit::low_level::TableReader::open(&run).unwrap();
    assert_eq!(some.notes.len(), 1);
    assert!(
        some.notes[0].contains("1 parts before the last one are missing"),
        "{:?}",
        some.notes
    );
    assert_eq!(some.read_all().unwrap().len(), 2 * SPECTRA);
    survey.succeed(&["fit", "--plan", "run", "--part", "1", "--device", "cpu"]);
    let mut all = popfit::low_level::TableReader::open(&run).unwrap();
    let (one, metadata) = popfit::FitTable::read(survey.path("one.parquet")).unwrap();
    assert_eq!(all.read_all().unwrap(), one);
    assert_eq!((all.metadata, all.notes), (metadata, Vec::new()));
}

/// A worker may be elsewhere than who planned.
#[test]
fn a_worker_finds_the_files_from_any_folder() {
    let survey = Survey::new(2);
    survey.fit("one.parquet", &[]);
    survey.plan(&["--parts", "2"]);
    let run = survey.path("run").display().to_string();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut worker = survey.command(&["fit", "--plan", &run, "--take", "--device", "cpu"]);
    let output = worker.current_dir(elsewhere.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", message(&output));
    survey.assert_merged_is("one.parquet");
}

#[test]
fn the_same_plan_again_is_left_alone_and_another_refused() {
    let survey = Survey::new(2);
    survey.plan(&["--parts", "2"]);
    let manifest = survey.bytes("run/_manifest.json");
    survey.plan(&["--parts", "2"]);
    assert!(survey.bytes("run/_manifest.json") == manifest);
    let other = survey.run(&["plan", "model.toml", "spectra-0.npz", "-o", "run"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(
        message(&other)
            .contains("the folder has another plan, which differs in its files of spectra"),
        "{}",
        message(&other)
    );
}

/// The manifest has lines for people, and any text of a model and any name of a file.
#[test]
fn manifests_hold_any_text() {
    let survey = Survey::new(1);
    let model = std::fs::read_to_string(survey.path("model.toml")).unwrap();
    let text = format!("# limits [[1]],[[2]] and {{\"path\"}},{{\"path\"}}\n{model}");
    std::fs::write(survey.path("model.toml"), text).unwrap();
    let name = "a]],[[b.npz";
    std::fs::rename(survey.path("spectra-0.npz"), survey.path(name)).unwrap();
    survey.succeed(&["plan", "model.toml", name, "-o", "run", "--parts", "3"]);
    survey.succeed(&["fit", "--plan", "run", "--take", "--device", "cpu"]);
    survey.succeed(&["merge", "run", "-o", "merged.parquet"]);
    let manifest = String::from_utf8(survey.bytes("run/_manifest.json")).unwrap();
    assert!(manifest.lines().count() > 5);
    // settings of the merged table are those of its rows, whatever became of the manifest
    let edited = manifest.replace("\"seed\":null", "\"seed\":7");
    assert_ne!(edited, manifest);
    std::fs::write(survey.path("run/_manifest.json"), edited).unwrap();
    survey.succeed(&["merge", "run", "-o", "again.parquet"]);
    assert!(survey.bytes("again.parquet") == survey.bytes("merged.parquet"));
}

#[test]
fn nothing_to_fit_is_nothing_to_plan() {
    let survey = Survey::new(0);
    let desi = popfit_testing::root().join("tests/data/desi");
    let spectra = desi.join("coadd-synth-505.fits.gz").display().to_string();
    let arm = format!(
        "arm = [{{ name = \"b\", emulator = '{}' }}]\n",
        desi.join("b.safetensors").display()
    );
    std::fs::write(
        survey.path("desi.toml"),
        arm + "velocity = { range = [-1500.0, 1500.0] }\n",
    )
    .unwrap();
    let output = survey.run(&[
        "plan",
        "desi.toml",
        &spectra,
        "-o",
        "run",
        "--min-sn",
        "1e9",
    ]);
    assert_eq!(output.status.code(), Some(2), "{}", message(&output));
    assert!(
        message(&output).contains("nothing to plan"),
        "{}",
        message(&output)
    );
    assert!(!survey.path("run").exists());
}

/// Whatever goes with no plan is refused, not ignored.
#[test]
fn options_that_a_plan_sets_are_refused_of_its_workers() {
    let survey = Survey::new(1);
    survey.plan(&[]);
    for options in [
        &["--seed", "5"][..],
        &["--starts", "4"],
        &["--objtype", "TGT"],
        &["--strict"],
        &["--overwrite"],
        &["-o", "out.parquet"],
        &["--part", "0"],
    ] {
        let output = survey.take(options).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(2),
            "{options:?}: {}",
            message(&output)
        );
    }
    for (arguments, words) in [
        (&["fit", "--plan", "run"][..], "--take"),
        (
            &["fit", "--plan", "run", "--part", "0", "--attempts", "2"],
            "--attempts goes with --take",
        ),
        (
            &["fit", "--plan", "run", "--take", "--attempts", "0"],
            "--attempts",
        ),
        (
            &[
                "fit",
                "model.toml",
                "spectra-0.npz",
                "-o",
                "x.parquet",
                "--part",
                "0",
            ],
            "--plan DIR",
        ),
        (
            &[
                "fit",
                "model.toml",
                "spectra-0.npz",
                "-o",
                "x.parquet",
                "--lease",
                "9",
            ],
            "--plan DIR",
        ),
        (
            &["merge", "run", "-o", "run/results.parquet"],
            "in the folder of its parts",
        ),
    ] {
        let output = survey.run(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            message(&output)
        );
        assert!(
            message(&output).contains(words),
            "{arguments:?}: {}",
            message(&output)
        );
    }
    assert!(!survey.path("x.parquet").exists());
    let missing = survey.run(&["fit", "--plan", "run", "--part", "7", "--device", "cpu"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        message(&missing).contains("has 1 parts, counted from 0, and no part 7"),
        "{}",
        message(&missing)
    );
    assert_eq!(names(&survey.path("run")), ["_manifest.json"]);
}
