//! `popfit predict`: the model spectrum of given parameters.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use popfit::low_level::npz;
use popfit::spectra::{FilesReader, Selection, SpectraReader};
use popfit::{ArmPrediction, Device, Error, OutputFile, SpectralFitter, SpectralModel};

use super::rows::short;
use super::stdout::line;
use super::{Failure, open_model};

/// Digits of bounds in messages.
const DIGITS: i32 = 6;

#[derive(clap::Args)]
pub struct Arguments {
    /// The model file
    #[arg(value_name = "MODEL.toml")]
    model: PathBuf,
    /// Values of all free parameters of the model, such as velocity=20 teff=5800 feh=-0.5
    #[arg(value_name = "NAME=VALUE")]
    values: Vec<String>,
    /// The file to write: a name that ends in .csv or .npz [default: print CSV]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Take the pixels, and the resolution if the model wants it, of the first spectrum in this file
    /// [default: the networks' own pixels]
    #[arg(long, value_name = "SPECTRA")]
    grid: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long)]
    overwrite: bool,
}

/// Runs `popfit predict`: evaluates the model as a fit does, and prints or writes its spectrum.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let output = arguments
        .output
        .as_deref()
        .map(|path| Target::create(path, arguments.overwrite))
        .transpose()?;
    let model = open_model(&arguments.model)?.build()?;
    let values = values(&arguments.values, &model)?;
    let fitter = SpectralFitter::new(model, Device::cpu());
    let arms = match &arguments.grid {
        None => fitter.predict(&values, None)?,
        Some(path) => {
            let mut selection = fitter.model().complete_selection(Selection::default());
            // one exposure has the pixels
            selection.join_exposures = false;
            let mut source = FilesReader::open(std::slice::from_ref(path), &selection)?;
            let Some(first) = source.next_batch(1)? else {
                return Err(Failure::usage(format!(
                    "{}: there is no spectrum in this file",
                    path.display()
                )));
            };
            fitter.predict(&values, Some(&first))?
        }
    };
    match output {
        None => csv(&arms).lines().for_each(line),
        Some(Target { file, is_npz }) => {
            let path = file.path().to_path_buf();
            let bytes = if is_npz {
                npz(&arms, &path)?
            } else {
                csv(&arms).into_bytes()
            };
            file.write(bytes).map_err(Failure::running)?;
            line(format_args!("wrote {}", path.display()));
        }
    }
    Ok(())
}

/// The file that is written.
struct Target {
    file: OutputFile,
    is_npz: bool,
}

impl Target {
    /// Begins the file; fails if its name ends in neither `.csv` nor `.npz`, or if it must not be replaced.
    fn create(path: &Path, overwrite: bool) -> Result<Target, Failure> {
        let ends_in = |ending: &str| {
            path.extension()
                .is_some_and(|found| found.eq_ignore_ascii_case(ending))
        };
        let is_npz = ends_in("npz");
        if !is_npz && !ends_in("csv") {
            return Err(Failure::usage(format!(
                "{}: give a name that ends in .csv or .npz",
                path.display()
            )));
        }
        Ok(Target {
            file: OutputFile::create(path, overwrite)?,
            is_npz,
        })
    }
}

/// Returns the values of the model's free parameters, in its order; fails for texts that are no `NAME=VALUE`, for names
/// that are unknown or given twice, and for parameters without a value.
fn values(texts: &[String], model: &SpectralModel) -> Result<Vec<f64>, Failure> {
    let names = model.parameters();
    let mut values: Vec<Option<f64>> = vec![None; names.len()];
    for text in texts {
        let pair = text.split_once('=');
        let Some((name, value)) =
            pair.and_then(|(name, value)| Some((name, value.parse::<f64>().ok()?)))
        else {
            return Err(Failure::usage(format!(
                "{text:?} is no NAME=VALUE, such as teff=5800"
            )));
        };
        let place = names
            .iter()
            .position(|known| known == name)
            .and_then(|p| values.get_mut(p));
        let Some(place) = place else {
            let names = names.join(", ");
            return Err(Failure::usage(format!(
                "the model has no free parameter {name:?}; it has {names}"
            )));
        };
        if place.replace(value).is_some() {
            return Err(Failure::usage(format!("{name} is given twice")));
        }
    }
    let all = names.iter().zip(&values).zip(model.bounds());
    let missing: Vec<String> = all
        .filter(|((_, value), _)| value.is_none())
        .map(|((name, _), (lower, upper))| {
            format!(
                "{name} ({} to {})",
                short(lower, DIGITS),
                short(upper, DIGITS)
            )
        })
        .collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(Failure::usage(format!(
            "give NAME=VALUE for each free parameter; missing: {missing}"
        )));
    }
    Ok(values.into_iter().flatten().collect())
}

/// Returns the spectrum as CSV: wavelength in Å and flux in the network's units, after the arm's name if there are
/// several.
fn csv(arms: &[ArmPrediction]) -> String {
    let several = arms.len() > 1;
    let mut text = String::from(if several {
        "arm,wavelength,flux\n"
    } else {
        "wavelength,flux\n"
    });
    for arm in arms {
        for (wavelength, flux) in arm.wavelength.iter().zip(&arm.flux) {
            let _ = match several {
                true => writeln!(text, "{},{wavelength},{flux}", arm.name),
                false => writeln!(text, "{wavelength},{flux}"),
            };
        }
    }
    text
}

/// Returns the spectrum as an NPZ file of `wavelength` and `flux`, or of `wavelength_ARM` and `flux_ARM` if there are
/// several arms.
fn npz(arms: &[ArmPrediction], path: &Path) -> Result<Vec<u8>, Failure> {
    let mut arrays = Vec::new();
    for arm in arms {
        let end = if arms.len() > 1 {
            format!("_{}", arm.name)
        } else {
            String::new()
        };
        arrays.push((format!("wavelength{end}"), arm.wavelength.as_slice()));
        arrays.push((format!("flux{end}"), arm.flux.as_slice()));
    }
    npz::archive(&arrays).map_err(|source| {
        Failure::running(Error::Io {
            path: path.to_path_buf(),
            source,
        })
    })
}
