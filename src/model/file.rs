//! The model file (TOML, design §5): parsed and checked as a whole, then built into a [`SpectralModel`].

use std::path::{Path, PathBuf};

use super::keys::{Document, Section, nearest};
use super::{Arm, Continuum, ContinuumKind, Interpolation, LabelSettings, Nonfinite, SpectraSettings, SpectralModel};
use crate::emulator::{self, Emulator};
use crate::error::{Error, Result};

/// km/s.
const LIGHT: f64 = 299_792.458;
/// Coefficients of a continuum, starts of a spectrum: more are surely a mistake.
const MAX_TERMS: usize = 64;
const DEFAULT_TERMS: usize = 10;
const MAX_STARTS: usize = 64;

/// A model file, parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFile {
    pub path: PathBuf,
    /// The file's text, for the result table's metadata.
    pub text: String,
    velocity: VelocityEntry,
    /// What is said of each label, by name.
    labels: Vec<(String, LabelSettings)>,
    /// `solver.starts`.
    pub starts: Option<usize>,
    arms: Vec<ArmEntry>,
    continuum: Option<Continuum>,
    marginalise: bool,
    spectra: SpectraSettings,
}

/// `[velocity]`, km/s.
#[derive(Clone, Copy, Debug, PartialEq)]
enum VelocityEntry {
    /// No such table: the spectra are in the rest frame.
    RestFrame,
    Range(f64, f64),
    Fixed(f64),
}

/// `[[arm]]`; paths as written.
#[derive(Clone, Debug, PartialEq)]
struct ArmEntry {
    name: String,
    emulator: PathBuf,
    wavelength: Option<PathBuf>,
    labels: Option<Vec<String>>,
    range: Option<(f64, f64)>,
    interpolation: Interpolation,
    continuum: Option<Continuum>,
}

impl ModelFile {
    /// Reads and checks a model file; opens no other file. [`Error::Model`] or [`Error::BadBounds`] names the line and the
    /// key; what popfit knows of but cannot do yet is refused likewise.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
        ModelFile::parse(path, text)
    }

    fn parse(path: &Path, text: String) -> Result<ModelFile> {
        let document = Document { path, text: &text };
        let table = document.parse()?;
        let top = Section::top(document, &table);
        top.only(&["arm", "continuum", "spectra", "velocity", "vsini", "labels", "solver"])?;
        if top.has("vsini") {
            return Err(top.not_yet("vsini", "rotational broadening"));
        }
        let arms = top.sections("arm")?.iter().map(arm).collect::<Result<Vec<_>>>()?;
        if arms.is_empty() {
            return Err(Error::Model(format!("{}: no [[arm]]", path.display())));
        }
        let (continuum, marginalise) = match top.section("continuum")? {
            Some(section) => (Some(continuum(&section, true)?), section.boolean("marginalise")?.unwrap_or(false)),
            None => (None, false),
        };
        Ok(ModelFile {
            velocity: top.section("velocity")?.map_or(Ok(VelocityEntry::RestFrame), |section| velocity(&section))?,
            labels: top.section("labels")?.map_or(Ok(Vec::new()), |section| labels(&section))?,
            starts: top.section("solver")?.map_or(Ok(None), |section| starts(&section))?,
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
            let hint = nearest(name, known.iter().copied());
            return Err(Error::Model(format!("{}: no arm `{name}`{hint}", self.path.display())));
        }
        self.arms.retain(|arm| names.contains(&arm.name));
        Ok(())
    }

    /// Opens the emulators, by paths relative to the model file's folder, and builds the model.
    pub fn build(&self) -> Result<SpectralModel> {
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
            VelocityEntry::RestFrame => builder,
            VelocityEntry::Range(low, high) => builder.velocity(low..=high),
            VelocityEntry::Fixed(velocity) => builder.fixed_velocity(velocity),
        };
        for (name, settings) in &self.labels {
            if !known.contains(name) {
                let hint = nearest(name, known.iter().map(String::as_str));
                return Err(Error::Model(format!("{}: no emulator has a label `{name}`{hint}", self.path.display())));
            }
            builder = builder.label(name.clone(), *settings);
        }
        builder.build()
    }

    fn open_arm(&self, entry: &ArmEntry) -> Result<Arm> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let mut emulator = Emulator::open(folder.join(&entry.emulator))?;
        if let Some(path) = &entry.wavelength {
            emulator = emulator.with_wavelength(emulator::read_wavelength(folder.join(path))?)?;
        }
        if let Some(names) = &entry.labels {
            emulator = emulator.with_label_names(names)?;
        }
        let mut arm = Arm::new(&entry.name, emulator).interpolation(entry.interpolation);
        if let Some((low, high)) = entry.range {
            arm = arm.range(low, high);
        }
        if let Some(continuum) = entry.continuum {
            arm = arm.continuum(continuum);
        }
        Ok(arm)
    }
}

fn arm(section: &Section<'_>) -> Result<ArmEntry> {
    section.only(&[
        "name",
        "emulator",
        "wavelength",
        "labels",
        "range",
        "interpolation",
        "line_spread",
        "continuum",
    ])?;
    if section.is_table("line_spread") {
        return Err(section.not_yet("line_spread", "a line spread"));
    }
    if section.choice("line_spread", &[("none", false), ("file", true)])? == Some(true) {
        return Err(section.not_yet("line_spread", "the spectra's own resolution matrix"));
    }
    let range = section.interval("range")?;
    if range.is_some_and(|(low, high)| low <= 0.0 || low == high) {
        return Err(section.error("range", "must be two different positive wavelengths in Å"));
    }
    let interpolation = [("cubic", Interpolation::Cubic), ("linear", Interpolation::Linear)];
    Ok(ArmEntry {
        name: section.required("name", section.text("name")?)?.to_string(),
        emulator: section.required("emulator", section.text("emulator")?)?.into(),
        wavelength: section.text("wavelength")?.map(PathBuf::from),
        labels: section.texts("labels")?,
        range,
        interpolation: section.choice("interpolation", &interpolation)?.unwrap_or(Interpolation::Cubic),
        continuum: section.section("continuum")?.map(|section| continuum(&section, false)).transpose()?,
    })
}

fn continuum(section: &Section<'_>, whole_model: bool) -> Result<Continuum> {
    section.only(if whole_model { &["kind", "terms", "marginalise"] } else { &["kind", "terms"] })?;
    let kinds = [("chebyshev", ContinuumKind::Chebyshev), ("rbf", ContinuumKind::Rbf), ("none", ContinuumKind::None)];
    let kind = section.choice("kind", &kinds)?.unwrap_or(ContinuumKind::Chebyshev);
    if kind == ContinuumKind::None {
        return match section.has("terms") {
            true => Err(section.error("terms", "has no meaning without a continuum")),
            false => Ok(Continuum::none()),
        };
    }
    let fewest = if kind == ContinuumKind::Rbf { 3 } else { 1 };
    let terms = section.integer("terms", fewest..=MAX_TERMS)?.unwrap_or(DEFAULT_TERMS);
    Ok(Continuum { kind, terms })
}

fn velocity(section: &Section<'_>) -> Result<VelocityEntry> {
    section.only(&["range", "fixed"])?;
    let entry = match (section.interval("range")?, section.number("fixed")?) {
        (Some(_), Some(_)) => return Err(section.error("fixed", "excludes `range`")),
        (Some((low, high)), None) => VelocityEntry::Range(low, high),
        (None, Some(velocity)) => VelocityEntry::Fixed(velocity),
        (None, None) => return section.required("range", None),
    };
    let (name, fastest) = match entry {
        VelocityEntry::Range(low, high) => ("range", low.abs().max(high.abs())),
        VelocityEntry::Fixed(velocity) => ("fixed", velocity.abs()),
        VelocityEntry::RestFrame => ("range", 0.0),
    };
    match fastest < LIGHT {
        true => Ok(entry),
        false => Err(section.error(name, "must be below the speed of light, in km/s")),
    }
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
    if section.has("tied") {
        return Err(section.not_yet("tied", "a tied label"));
    }
    if let Some(start) = section.is_table("start").then(|| section.section("start")).transpose()?.flatten() {
        start.only(&["column"])?;
        start.required("column", start.text("column")?)?;
        return Err(section.not_yet("start", "starts from a column"));
    }
    let settings = LabelSettings {
        start: section.number("start")?,
        bounds: section.interval("bounds")?,
        fixed: section.number("fixed")?,
        prior: section.section("prior")?.map(|section| prior(&section)).transpose()?,
    };
    match ["start", "bounds", "prior"].into_iter().find(|name| settings.fixed.is_some() && section.has(name)) {
        Some(name) => Err(section.error("fixed", format!("excludes `{name}`"))),
        None => Ok(settings),
    }
}

fn prior(section: &Section<'_>) -> Result<(f64, f64)> {
    section.only(&["mean", "sigma"])?;
    let mean = section.required("mean", section.number("mean")?)?;
    let sigma = section.required("sigma", section.number("sigma")?)?;
    if sigma > 0.0 { Ok((mean, sigma)) } else { Err(section.error("sigma", "must be positive")) }
}

fn spectra(section: &Section<'_>) -> Result<SpectraSettings> {
    section.only(&["mask", "error_floor", "nonfinite"])?;
    let error_floor = section.number("error_floor")?.unwrap_or(0.0);
    if error_floor < 0.0 {
        return Err(section.error("error_floor", "must not be negative"));
    }
    let nonfinite = section.choice("nonfinite", &[("error", Nonfinite::Error), ("mask", Nonfinite::Mask)])?;
    Ok(SpectraSettings { mask: section.intervals("mask")?, error_floor, nonfinite: nonfinite.unwrap_or_default() })
}

fn starts(section: &Section<'_>) -> Result<Option<usize>> {
    section.only(&["kind", "starts"])?;
    let kinds = [("lm", true), ("nelder-mead", false), ("lm+nelder-mead", false)];
    if section.choice("kind", &kinds)? == Some(false) {
        return Err(section.not_yet("kind", "a solver other than \"lm\""));
    }
    section.integer("starts", 1..=MAX_STARTS)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
