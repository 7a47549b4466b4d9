//! The model file (TOML): parsed and checked as a whole, then built into a [`SpectralModel`].

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::path::{Path, PathBuf};

use super::keys::{Document, Section, Setting};
use super::{
    Arm, Continuum, ContinuumKind, Interpolation, LabelColumns, LabelSettings, LineSpread, NonFinite, SpectraSettings,
    SpectralModel, SpectralModelBuilder, VelocityScan,
};
use crate::emulator::{self, Activation, Emulator};
use crate::error::{Error, Result};
use crate::solver::recording::LIGHT;
use crate::solver::{MOST_STARTS, Solver};
use crate::suggest::hint;

const DEFAULT_TERMS: usize = 10;

/// A model file, parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFile {
    /// Where it was read.
    pub path: PathBuf,
    /// The file's text, for the result table's metadata.
    pub text: String,
    velocity: VelocityEntry,
    vsini: VelocityEntry,
    /// What is said of each label, and of velocity and vsini, by name.
    labels: Vec<(String, LabelSettings)>,
    /// `solver.kind`.
    pub solver: Option<Solver>,
    /// `solver.starts`.
    pub starts: Option<usize>,
    /// `solver.released_errors`.
    pub released_errors: Option<bool>,
    /// `velocity.scan`.
    pub velocity_scan: Option<VelocityScan>,
    arms: Vec<ArmEntry>,
    continuum: Option<Continuum>,
    marginalise: bool,
    spectra: SpectraSettings,
}

/// `[velocity]` or `[vsini]`, km/s.
#[derive(Clone, Copy, Debug, PartialEq)]
enum VelocityEntry {
    /// No such table: the spectra are in the rest frame, and nothing rotates.
    Absent,
    Range(f64, f64),
    Fixed(f64),
}

/// `[solver]`.
#[derive(Default)]
struct SolverEntry {
    kind: Option<Solver>,
    starts: Option<usize>,
    released_errors: Option<bool>,
}

/// `[[arm]]`; paths as written.
#[derive(Clone, Debug, PartialEq)]
struct ArmEntry {
    name: String,
    emulator: PathBuf,
    wavelength: Option<PathBuf>,
    labels: Option<Vec<String>>,
    activation: Option<Activation>,
    range: Option<(f64, f64)>,
    interpolation: Interpolation,
    line_spread: LineSpread,
    continuum: Option<Continuum>,
}

impl ModelFile {
    /// JSON Schema of the model file, for editors.
    pub const SCHEMA: &str = include_str!("../../docs/src/model.schema.json");

    /// Reads and checks a model file; opens no other file. [`Error::Model`] or [`Error::BadBounds`] names the line and the
    /// key; what popfit knows of but cannot do yet is refused likewise.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(Error::io(path))?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Error::format(path, "not a model file (TOML text); the model file comes first, files of spectra follow")
        })?;
        ModelFile::parse(path, text)
    }

    /// Parses the text of a model file that lay at `path`, whether or not it still lies there. Errors as in [`open`](ModelFile::open).
    pub fn from_text(path: impl AsRef<Path>, text: impl Into<String>) -> Result<ModelFile> {
        ModelFile::parse(path.as_ref(), text.into())
    }

    /// Returns the name of each arm, and the path of its emulator as the file gives it.
    pub(crate) fn arm_emulators(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.arms.iter().map(|arm| (arm.name.as_str(), arm.emulator.as_path()))
    }

    fn parse(path: &Path, text: String) -> Result<ModelFile> {
        let document = Document { path, text: &text };
        let table = document.parse()?;
        let top = Section::top(document, &table);
        top.only(&["arm", "continuum", "spectra", "velocity", "vsini", "labels", "solver"])?;
        let arms = top.sections("arm")?.iter().map(arm).collect::<Result<Vec<_>>>()?;
        if arms.is_empty() {
            return Err(Error::Model(format!("{}: no [[arm]]", path.display())));
        }
        let (continuum, marginalise) = match top.section("continuum")? {
            Some(section) => (Some(continuum(&section, true)?), section.boolean("marginalise")?.unwrap_or(false)),
            None => (None, false),
        };
        let mut labels = top.section("labels")?.map_or(Ok(Vec::new()), |section| labels(&section))?;
        let solver = top.section("solver")?.map_or(Ok(SolverEntry::default()), |section| solver(&section))?;
        let scan = |section: Section<'_>| section.choice("scan", VelocityScan::NAMES);
        let velocity_scan = top.section("velocity")?.map_or(Ok(None), scan)?;
        Ok(ModelFile {
            velocity: motion(&top, "velocity", &mut labels)?,
            vsini: motion(&top, "vsini", &mut labels)?,
            labels,
            solver: solver.kind,
            starts: solver.starts,
            released_errors: solver.released_errors,
            velocity_scan,
            spectra: top.section("spectra")?.map_or(Ok(SpectraSettings::default()), |section| spectra(&section))?,
            arms,
            continuum,
            marginalise,
            path: path.to_path_buf(),
            text: text.clone(),
        })
    }

    /// Leaves out all other arms. [`Error::Model`] for an arm that the file does not have.
    pub fn keep_arms(&mut self, names: &[String]) -> Result<()> {
        let known: Vec<&str> = self.arms.iter().map(|arm| arm.name.as_str()).collect();
        if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
            let hint = hint(name, known.iter().copied());
            return Err(Error::Model(format!("{}: no arm `{name}`{hint}", self.path.display())));
        }
        self.arms.retain(|arm| names.contains(&arm.name));
        Ok(())
    }

    /// Opens the emulators, by paths relative to the model file's folder, and builds the model.
    pub fn build(&self) -> Result<SpectralModel> {
        self.builder().and_then(SpectralModelBuilder::build).map_err(|error| self.blame(error))
    }

    /// Names this file in an error of its model.
    pub fn blame(&self, error: Error) -> Error {
        let path = self.path.display();
        match error {
            Error::Model(message) => Error::Model(format!("{path}: {message}")),
            Error::BadBounds { parameter, lower, upper } => {
                Error::BadBounds { parameter: format!("{path}: {parameter}"), lower, upper }
            }
            other => other,
        }
    }

    fn builder(&self) -> Result<SpectralModelBuilder> {
        let mut builder = SpectralModel::builder().marginalise(self.marginalise).spectra(self.spectra.clone());
        let mut known: Vec<String> = Vec::new();
        for entry in &self.arms {
            let arm = self.open_arm(entry)?;
            known.extend(arm.emulator.labels.iter().map(|label| label.name.clone()));
            builder = builder.add_arm(arm);
        }
        if let Some(continuum) = self.continuum {
            builder = builder.continuum(continuum);
        }
        builder = match self.velocity {
            VelocityEntry::Absent => builder,
            VelocityEntry::Range(low, high) => builder.velocity(low..=high),
            VelocityEntry::Fixed(velocity) => builder.fixed_velocity(velocity),
        };
        builder = match self.vsini {
            VelocityEntry::Absent => builder,
            VelocityEntry::Range(low, high) => builder.vsini(low..=high),
            VelocityEntry::Fixed(vsini) => builder.fixed_vsini(vsini),
        };
        for (name, settings) in &self.labels {
            if !known.contains(name) && !["velocity", "vsini"].contains(&name.as_str()) {
                let hint = match names_are_numbers(&known) {
                    true => "; the network carries no label names: give the arm `labels = [...]`".to_string(),
                    false => hint(name, known.iter().map(String::as_str)),
                };
                return Err(Error::Model(format!("no emulator has a label `{name}`{hint}")));
            }
            builder = builder.label(name.clone(), settings.clone());
        }
        Ok(builder)
    }

    /// The files that the model is made from: itself, emulators and their wavelengths.
    pub fn inputs(&self) -> Vec<PathBuf> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let of_arm = |entry: &ArmEntry| [Some(PathBuf::from(&entry.emulator)), entry.wavelength.clone()];
        let arms = self.arms.iter().flat_map(of_arm).flatten().map(|path| folder.join(path));
        [self.path.clone()].into_iter().chain(arms).collect()
    }

    /// Adds to the error of a file that cannot be read which key of the model file names it.
    fn of_arm(&self, error: Error, entry: &ArmEntry, key: &str) -> Error {
        match error {
            Error::Io { path, source } => {
                let (arm, model) = (&entry.name, self.path.display());
                let message = format!(
                    "{source}; arm \"{arm}\" of {model} names this file as its `{key}` (a path is relative to the model file)"
                );
                Error::Io { path, source: std::io::Error::new(source.kind(), message) }
            }
            other => other,
        }
    }

    fn open_arm(&self, entry: &ArmEntry) -> Result<Arm> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let mut emulator =
            Emulator::open(folder.join(&entry.emulator)).map_err(|error| self.of_arm(error, entry, "emulator"))?;
        if let Some(path) = &entry.wavelength {
            let grid = emulator::read_wavelength(folder.join(path));
            emulator = emulator.with_wavelength(grid.map_err(|error| self.of_arm(error, entry, "wavelength"))?)?;
        }
        if let Some(names) = &entry.labels {
            emulator = emulator.with_label_names(names)?;
        }
        if let Some(activation) = entry.activation {
            emulator = emulator.with_activation(activation)?;
        }
        let mut arm = Arm::new(&entry.name, emulator).interpolation(entry.interpolation).line_spread(entry.line_spread);
        if let Some((low, high)) = entry.range {
            arm = arm.range(low, high);
        }
        if let Some(continuum) = entry.continuum {
            arm = arm.continuum(continuum);
        }
        Ok(arm)
    }
}

/// `label1`, `label2`, …: the names that labels have before they are given any.
fn names_are_numbers(names: &[String]) -> bool {
    let number = |name: &String| name.strip_prefix("label").is_some_and(|n| n.parse::<u32>().is_ok());
    !names.is_empty() && names.iter().all(number)
}

fn arm(section: &Section<'_>) -> Result<ArmEntry> {
    section.only(&[
        "name",
        "emulator",
        "wavelength",
        "labels",
        "activation",
        "range",
        "interpolation",
        "line_spread",
        "continuum",
    ])?;
    let range = section.interval("range")?;
    if range.is_some_and(|(low, high)| low <= 0.0 || low == high) {
        return Err(section.error("range", "must be two different positive wavelengths in Å"));
    }
    Ok(ArmEntry {
        name: section.required("name", section.text("name")?)?.to_string(),
        emulator: section.required("emulator", section.text("emulator")?)?.into(),
        wavelength: section.text("wavelength")?.map(PathBuf::from),
        labels: section.texts("labels")?,
        activation: section.choice("activation", Activation::NAMES)?,
        range,
        interpolation: section.choice("interpolation", Interpolation::NAMES)?.unwrap_or(Interpolation::Cubic),
        line_spread: line_spread(section)?,
        continuum: section.section("continuum")?.map(|section| continuum(&section, false)).transpose()?,
    })
}

fn line_spread(arm: &Section<'_>) -> Result<LineSpread> {
    if !arm.is_table("line_spread") {
        let words = [("none", LineSpread::None), ("file", LineSpread::File)];
        return Ok(arm.choice("line_spread", &words)?.unwrap_or_default());
    }
    let section = arm.required("line_spread", arm.section("line_spread")?)?;
    section.only(&["resolving_power", "fwhm"])?;
    match (section.number("resolving_power")?, section.number("fwhm")?) {
        (Some(_), Some(_)) => Err(section.error("fwhm", "excludes `resolving_power`")),
        (Some(power), None) => Ok(LineSpread::ResolvingPower(power)),
        (None, Some(width)) => Ok(LineSpread::Fwhm(width)),
        (None, None) => section.required("resolving_power", None),
    }
}

fn continuum(section: &Section<'_>, whole_model: bool) -> Result<Continuum> {
    section.only(if whole_model { &["kind", "terms", "marginalise"] } else { &["kind", "terms"] })?;
    let kind = section.choice("kind", ContinuumKind::NAMES)?.unwrap_or(ContinuumKind::Chebyshev);
    if kind == ContinuumKind::None {
        return match section.has("terms") {
            true => Err(section.error("terms", "has no meaning without a continuum")),
            false => Ok(Continuum::none()),
        };
    }
    let terms = section.integer("terms", kind.terms())?.unwrap_or(DEFAULT_TERMS);
    Ok(Continuum { kind, terms })
}

/// `[velocity]` or `[vsini]`; what is said of its start and prior joins that of the labels.
fn motion(top: &Section<'_>, name: &str, labels: &mut Vec<(String, LabelSettings)>) -> Result<VelocityEntry> {
    let Some(section) = top.section(name)? else { return Ok(VelocityEntry::Absent) };
    match name {
        "velocity" => section.only(&["range", "fixed", "start", "prior", "scan"])?,
        _ => section.only(&["range", "fixed", "start", "prior"])?,
    }
    let entry = match (section.interval("range")?, section.number("fixed")?) {
        (Some(_), Some(_)) => return Err(section.error("fixed", "excludes `range`")),
        (Some((low, high)), None) => VelocityEntry::Range(low, high),
        (None, Some(velocity)) => VelocityEntry::Fixed(velocity),
        (None, None) => return section.required("range", None),
    };
    let (key, slowest, fastest) = match entry {
        VelocityEntry::Range(low, high) => ("range", low, low.abs().max(high.abs())),
        VelocityEntry::Fixed(velocity) => ("fixed", velocity, velocity.abs()),
        VelocityEntry::Absent => ("range", 0.0, 0.0),
    };
    if fastest >= LIGHT {
        return Err(section.error(key, "must be below the speed of light, in km/s"));
    }
    if name == "vsini" && slowest < 0.0 {
        return Err(section.error(key, "must not be negative"));
    }
    let said = known_of(&section)?;
    if let (VelocityEntry::Fixed(_), Some(key)) = (entry, ["start", "prior"].into_iter().find(|key| section.has(key))) {
        return Err(section.error("fixed", format!("excludes `{key}`")));
    }
    if said != LabelSettings::default() {
        labels.push((name.to_string(), said));
    }
    Ok(entry)
}

fn labels(section: &Section<'_>) -> Result<Vec<(String, LabelSettings)>> {
    let read = |name: &str| {
        let label = section.required(name, section.section(name)?)?;
        Ok((name.to_string(), label_settings(&label)?))
    };
    section.names().map(read).collect()
}

fn label_settings(section: &Section<'_>) -> Result<LabelSettings> {
    section.only(&["start", "bounds", "fixed", "tied", "prior"])?;
    let mut settings = known_of(section)?;
    settings.fixed = section.number("fixed")?;
    settings.tied = section.text("tied")?.map(str::to_string);
    if let Some((low, high)) = section.settings("bounds")? {
        let ((low, lower), (high, upper)) = (low.split(), high.split());
        settings.bounds = Some((low.unwrap_or(f64::NEG_INFINITY), high.unwrap_or(f64::INFINITY)));
        (settings.columns.lower, settings.columns.upper) = (lower, upper);
    }
    for (alone, others) in
        [("tied", &["fixed", "start", "bounds", "prior"][..]), ("fixed", &["start", "bounds", "prior"][..])]
    {
        if let Some(other) = others.iter().find(|other| section.has(alone) && section.has(other)) {
            return Err(section.error(alone, format!("excludes `{other}`")));
        }
    }
    Ok(settings)
}

/// Start and prior.
fn known_of(section: &Section<'_>) -> Result<LabelSettings> {
    let mut settings = LabelSettings::default();
    let bad_start = |error| match error {
        Error::Model(message) => Error::Model(message),
        other => other,
    };
    if let Some(start) = section.setting("start").map_err(bad_start)? {
        (settings.start, settings.columns.start) = start.split();
    }
    if let Some(section) = section.section("prior")? {
        (settings.prior, settings.columns) = prior(&section, settings.columns)?;
    }
    Ok(settings)
}

fn prior(section: &Section<'_>, columns: LabelColumns) -> Result<(Option<(f64, f64)>, LabelColumns)> {
    section.only(&["mean", "sigma"])?;
    let mean = section.required("mean", section.setting("mean")?)?;
    let sigma = section.required("sigma", section.setting("sigma")?)?;
    if matches!(sigma, Setting::Number(x) if x <= 0.0) {
        return Err(section.error("sigma", "must be positive"));
    }
    let ((mean, mean_column), (sigma, sigma_column)) = (mean.split(), sigma.split());
    let columns = LabelColumns { mean: mean_column, sigma: sigma_column, ..columns };
    // a column takes the place of these numbers
    Ok((Some((mean.unwrap_or(0.0), sigma.unwrap_or(1.0))), columns))
}

fn spectra(section: &Section<'_>) -> Result<SpectraSettings> {
    section.only(&["mask", "error_floor", "nonfinite"])?;
    let error_floor = section.number("error_floor")?.unwrap_or(0.0);
    if error_floor < 0.0 {
        return Err(section.error("error_floor", "must not be negative"));
    }
    let nonfinite = section.choice("nonfinite", NonFinite::NAMES)?;
    Ok(SpectraSettings { mask: section.intervals("mask")?, error_floor, nonfinite: nonfinite.unwrap_or_default() })
}

fn solver(section: &Section<'_>) -> Result<SolverEntry> {
    section.only(&["kind", "starts", "released_errors"])?;
    Ok(SolverEntry {
        kind: section.parsed("kind", Solver::NAMES)?,
        starts: section.integer("starts", 1..=MOST_STARTS)?,
        released_errors: section.boolean("released_errors")?,
    })
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
