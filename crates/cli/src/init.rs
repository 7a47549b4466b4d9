//! `popfit init`: a commented model file to begin with.

use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

use popfit::spectra::open_reader;
use popfit::{Emulator, Error, ModelFile, OutputFile};

use super::Failure;
use super::stdout::line;

/// Model file of a survey.
struct Survey {
    name: &'static str,
    /// Description of the survey's files, for the first line.
    files: &'static str,
    /// Names of arms and of their networks, which are placeholders until the user has them.
    arms: &'static [(&'static str, &'static str)],
    /// Comment with a setting that the arms may take; empty if there is none.
    setting: &'static str,
}

/// All surveys except APOGEE, whose model file has other settings.
const SURVEYS: [Survey; 5] = [
    Survey {
        name: "desi",
        files: "DESI coadd and spectra files: three arms, fitted together.",
        arms: &[
            ("b", "desi_b.safetensors"),
            ("r", "desi_r.safetensors"),
            ("z", "desi_z.safetensors"),
        ],
        setting: "# line_spread = \"file\"        # in an [[arm]]: use the spectra's own resolution matrices\n",
    },
    Survey {
        name: "sdss",
        files: "SDSS spec files. Each holds one spectrum; give many of them to one run.",
        arms: &[("sdss", "sdss.safetensors")],
        setting: "",
    },
    Survey {
        name: "mwm",
        files: "SDSS-V mwmStar and mwmVisit files. A spectrum has one arm; `--arms boss` reads BOSS alone.",
        arms: &[
            ("boss", "boss.safetensors"),
            ("apogee", "apogee.safetensors"),
        ],
        setting: "",
    },
    Survey {
        name: "lamost",
        files: "LAMOST spectra of low resolution. Each file holds one; give many of them to one run.",
        arms: &[("lamost", "lamost.safetensors")],
        setting: "",
    },
    Survey {
        name: "lamost-mrs",
        files: "LAMOST spectra of medium resolution: two arms, fitted together.",
        arms: &[("b", "lamost_b.safetensors"), ("r", "lamost_r.safetensors")],
        setting: "",
    },
];

/// Names of all surveys, for messages.
const NAMES: &str = "desi, sdss, mwm, apogee, lamost, lamost-mrs";

#[derive(clap::Args)]
pub struct Arguments {
    /// A survey (desi, sdss, mwm, apogee, lamost, lamost-mrs), or the file of an emulator
    #[arg(value_name = "SURVEY|EMULATOR")]
    what: String,
    /// The model file to write
    #[arg(short, long, default_value = "model.toml", value_name = "FILE")]
    output: PathBuf,
    /// Replace FILE if it exists
    #[arg(long)]
    overwrite: bool,
}

/// Runs `popfit init`: writes a model file for a survey or an emulator's file, and prints what to do next.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let file = OutputFile::create(&arguments.output, arguments.overwrite)?;
    let what = arguments.what.as_str();
    let text = match SURVEYS.iter().find(|survey| survey.name == what) {
        Some(survey) => of_survey(survey),
        None if what == "apogee" => apogee(),
        None => of_emulator(Path::new(what), &arguments.output)?,
    };
    file.write(text)?;
    let output = arguments.output.display();
    line(format_args!(
        "wrote {output}; edit it, then try it with `popfit check {output}`"
    ));
    Ok(())
}

/// Velocity of most stars.
const VELOCITY: &str = "\
[velocity]
range = [-1500.0, 1500.0]   # km/s, positive when receding; without this table the spectra are at rest
";

/// Rotation of most surveys' stars.
const ROTATION: &str = "\
[vsini]
range = [0.0, 300.0]        # km/s; remove this table if the stars do not rotate, which is much faster
";

/// Rotation where nobody knows of any.
const NO_ROTATION: &str = "\
# [vsini]                    # for stars that rotate; without this table fits are much faster
# range = [0.0, 300.0]       # km/s
";

const CONTINUUM: &str = "\
[continuum]
kind = \"rbf\"                # or \"chebyshev\", or \"none\" for normalised spectra
terms = 10                  # per arm; they are solved for at every step
marginalise = true          # adds what the uncertain continuum costs to the objective, as rvspecfit does
";

const SETTINGS: &str = "\
# Further settings, with examples. See the page on the model file in the book.
#
# [spectra]
# mask = [[5570.0, 5590.0], [6860.0, 6890.0]] # wavelength ranges in Å to leave out
# widen = { bits = [22], factor = 3.0 } # bits of masks that widen errors instead of masking
# jitter = 0.02               # adds this × the flux to errors, in quadrature; \"fit\" finds how much
# error_floor = 0.1           # raises errors below this × their median
#
# [labels.feh]                # or another label of the emulator
# prior = { mean = -0.5, sigma = 0.5 }
# start = { column = \"FEH0\" } # a column of the file of spectra
#
# [exposures]                 # fits spectra of a file that have the same id together
# velocity = \"shared\"         # or \"each\": a velocity of its own for each exposure
#
# [shared]                    # spectra of a file with the same value in a column share labels
# column = \"CLUSTER\"
# labels = [\"feh\"]
#
# [solver]
# starts = 8                  # instead of as many as compete
";

/// Returns the text of a new model file for a survey's spectra, whose networks the user is to name.
fn of_survey(survey: &Survey) -> String {
    let mut text = format!("# A model of {}\n", survey.files);
    for (arm, emulator) in survey.arms {
        let _ = write!(
            text,
            "\n[[arm]]\nname = \"{arm}\"\nemulator = \"{emulator}\"   # yours, relative to this file\n"
        );
    }
    [
        &text,
        survey.setting,
        "\n",
        CONTINUUM,
        "\n",
        VELOCITY,
        "\n",
        ROTATION,
        "\n",
        SETTINGS,
    ]
    .concat()
}

/// Returns the text of a new model file for APOGEE spectra.
fn apogee() -> String {
    let arm = "\
# A model of APOGEE apStar and apVisit files.

[[arm]]
name = \"apogee\"
emulator = \"apogee.safetensors\"   # yours, relative to this file
# Networks of The Payne and binspec are NPZ files, and need more:
# wavelength = \"apogee_wavelength.npz\"
# labels = [\"teff\", \"logg\", \"feh\"]
# activation = \"sigmoid\"
# interpolation = \"linear\"

[continuum]
kind = \"chebyshev\"          # or \"rbf\", or \"none\" for normalised spectra
terms = 6
marginalise = true
";
    let velocity = "[velocity]\nrange = [-500.0, 500.0]     # km/s, positive when receding\n";
    [arm, "\n", velocity, "\n", SETTINGS].concat()
}

/// Returns how the model file `output` names the file `path`: relative to its folder if `path` is relative or beside
/// it.
fn as_seen_from(output: &Path, path: &Path) -> PathBuf {
    let folder = output.parent().unwrap_or(Path::new(""));
    let beside = Some(folder) == path.parent();
    match (path.file_name(), normalised(folder), normalised(path)) {
        (Some(name), ..) if beside => PathBuf::from(name),
        (_, Some(from), Some(to)) if path.is_relative() => {
            let relative = relative(&from, &to);
            // a link on the way may lead elsewhere
            let leads_there = std::fs::canonicalize(from.join(&relative)).ok()
                == std::fs::canonicalize(path).ok();
            if leads_there { relative } else { to }
        }
        _ => path.to_path_buf(),
    }
}

/// Returns the path as an absolute one without `.` and `..`, links not followed; `None` without a working directory.
fn normalised(path: &Path) -> Option<PathBuf> {
    // an empty path is the working directory
    let absolute = std::env::current_dir().ok()?.join(path);
    let mut parts = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    Some(parts)
}

/// Returns the path that leads from the folder `from` to `to`, both absolute; `to` itself if they have nothing in
/// common.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let common = from
        .components()
        .zip(to.components())
        .take_while(|(a, b)| a == b)
        .count();
    if common == 0 {
        return to.to_path_buf();
    }
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    up.chain(to.components().skip(common)).collect()
}

/// Returns the failure for a file that is no emulator: what `popfit init` expects, and what the file is instead.
fn not_an_emulator(path: &Path, error: Error) -> Failure {
    let wanted = format!("popfit init wants a survey ({NAMES}), or the file of an emulator");
    match open_reader(path) {
        Ok(spectra) => {
            let count = if spectra.len() == 1 {
                "1 spectrum".into()
            } else {
                format!("{} spectra", spectra.len())
            };
            Failure::usage(format!(
                "{}: this is a file of {count}; {wanted}",
                path.display()
            ))
        }
        Err(_) if ModelFile::open(path).is_ok() => Failure::usage(format!(
            "{}: this is a model file already; {wanted}",
            path.display()
        )),
        // a file that is meant to be one, and has a fault
        Err(_)
            if ["safetensors", "npz"]
                .iter()
                .any(|ending| path.extension().is_some_and(|found| found == *ending)) =>
        {
            Failure::from(error)
        }
        Err(_) => {
            let mut failure = Failure::from(error);
            failure.add(&format!("; {wanted}"));
            failure
        }
    }
}

/// Returns the text of a new model file for the emulator at `path`, with its labels and their training ranges.
fn of_emulator(path: &Path, output: &Path) -> Result<String, Failure> {
    if !path.exists() {
        let message = format!(
            "{}: this is neither a survey ({NAMES}) nor a file",
            path.display()
        );
        return Err(Failure::usage(message));
    }
    let emulator = Emulator::open(path).map_err(|error| not_an_emulator(path, error))?;
    let shown = toml::Value::String(as_seen_from(output, path).display().to_string());
    let mut text =
        format!("# A model with one emulator.\n\n[[arm]]\nname = \"b\"\nemulator = {shown}\n");
    if let (Some(first), Some(last)) = (emulator.wavelength().first(), emulator.wavelength().last())
    {
        let _ = writeln!(
            text,
            "# range = [{first:.1}, {last:.1}]   # Å: use only a part of what the emulator covers"
        );
    } else {
        text.push_str("wavelength = \"wavelength.npz\"   # this network carries none: say where its grid is\n");
        text.push_str(
            "# labels = [\"teff\", \"logg\", \"feh\"]   # likewise, in the order of its inputs\n",
        );
    }
    let _ = write!(
        text,
        "\n{CONTINUUM}\n{VELOCITY}\n{NO_ROTATION}\n# Labels and their training ranges, which are the bounds unless you narrow them:\n"
    );
    for label in emulator.labels() {
        let _ = writeln!(
            text,
            "# {}: {} to {} {}",
            label.name, label.min, label.max, label.unit
        );
    }
    if let Some(label) = emulator.labels().first() {
        let _ = writeln!(
            text,
            "# [labels.{}]\n# bounds = [{}, {}]",
            label.name, label.min, label.max
        );
    }
    Ok([&text, "\n", SETTINGS].concat())
}
