//! The model file (TOML): parsed and checked as a whole, then built into a [`SpectralModel`].

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::keys::{Document, Section};
use super::sections::{
    ArmEntry, SolverEntry, VelocityEntry, read_arm, read_continuum, read_exposures, read_labels,
    read_motion, read_shared, read_solver, read_spectra,
};
use super::{
    Arm, Continuum, ExposureVelocity, LabelSettings, SharedLabels, SpectraSettings, SpectralModel,
    SpectralModelBuilder, VelocityScan,
};
use crate::emulator::{self, Emulator};
use crate::error::{Error, Result, in_plain_words};
use crate::io::files::read_text;
use crate::solver::Solver;
use crate::suggest::hint;

/// Maximum length of a model file in bytes.
const MAX_BYTES: u64 = 1 << 24;

/// A parsed model file.
#[derive(Clone, Debug)]
pub struct ModelFile {
    /// Path from which it was read.
    pub path: PathBuf,
    /// The file's text, for the result table's metadata.
    pub text: String,
    velocity: VelocityEntry,
    vsini: VelocityEntry,
    /// Settings of each label, and of velocity and vsini, by name.
    labels: Vec<(String, LabelSettings)>,
    /// `solver.kind`.
    pub solver: Option<Solver>,
    /// `solver.starts`.
    pub starts: Option<usize>,
    /// `solver.released_errors`.
    pub released_errors: Option<bool>,
    /// `velocity.scan`.
    pub velocity_scan: Option<VelocityScan>,
    /// `exposures.velocity`. [`join_exposures`](ModelFile::join_exposures) sets it.
    exposures: Option<ExposureVelocity>,
    /// `[shared]`.
    shared: Option<SharedLabels>,
    arms: Vec<ArmEntry>,
    continuum: Option<Continuum>,
    marginalise: bool,
    spectra: SpectraSettings,
}

/// The files of an arm's network, by the paths that the model file has. They are relative to its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArmFiles<'a> {
    /// Name of the arm.
    pub arm: &'a str,
    /// The network.
    pub emulator: &'a Path,
    /// Wavelengths of its pixels, which replace those that the network may have.
    pub wavelength: Option<&'a Path>,
}

impl ModelFile {
    /// JSON Schema of the model file, for editors.
    #[doc(hidden)]
    pub const SCHEMA: &str = include_str!("../../docs/src/model.schema.json");

    /// Reads and checks a model file; opens no other file.
    ///
    /// # Errors
    /// Returns [`Error::Io`], [`Error::Format`] if the file is not text, and [`Error::Model`] or [`Error::BadBounds`]
    /// with the line and the key of a mistake.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile> {
        let path = path.as_ref();
        let text = read_text(path, MAX_BYTES, "not a model file (TOML text)")?;
        ModelFile::parse(path, text)
    }

    /// Parses the text of a model file that lay at `path`, whether or not it still lies there.
    ///
    /// # Errors
    /// Returns [`Error::Model`] or [`Error::BadBounds`] with the line and the key of a mistake.
    #[doc(hidden)]
    pub fn from_text(path: impl AsRef<Path>, text: impl Into<String>) -> Result<ModelFile> {
        ModelFile::parse(path.as_ref(), text.into())
    }

    /// Returns each arm's name and the path of its emulator as the model file writes it, relative to the file's folder.
    pub(crate) fn arm_emulators(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.arms
            .iter()
            .map(|arm| (arm.name.as_str(), arm.emulator.as_path()))
    }

    /// Parses the text of a model file (TOML) into its entries, without opening emulators; `path` is for messages.
    fn parse(path: &Path, text: String) -> Result<ModelFile> {
        // 1. Parse the TOML text, and check its top-level keys.
        let document = Document { path, text: &text };
        let table = document.parse()?;
        let top = Section::whole_file(document, &table);
        top.check_keys(&[
            "arm",
            "continuum",
            "spectra",
            "velocity",
            "vsini",
            "labels",
            "exposures",
            "shared",
            "solver",
        ])?;
        // 2. Read the sections one by one.
        let arms = top
            .open_sections("arm")?
            .iter()
            .map(read_arm)
            .collect::<Result<Vec<_>>>()?;
        if arms.is_empty() {
            return Err(Error::model_setting(
                "arm",
                format!("{}: no [[arm]]", path.display()),
            ));
        }
        let (continuum, marginalise) = match top.open_section("continuum")? {
            Some(section) => (
                Some(read_continuum(&section, true)?),
                section.read_boolean("marginalise")?.unwrap_or(false),
            ),
            None => (None, false),
        };
        let mut labels = match top.open_section("labels")? {
            Some(section) => read_labels(&section)?,
            None => Vec::new(),
        };
        let solver = match top.open_section("solver")? {
            Some(section) => read_solver(&section)?,
            None => SolverEntry::default(),
        };
        let velocity_scan = match top.open_section("velocity")? {
            Some(section) => section.read_choice("scan", VelocityScan::NAMES)?,
            None => None,
        };
        let exposures = match top.open_section("exposures")? {
            Some(section) => Some(read_exposures(&section)?),
            None => None,
        };
        let shared = match top.open_section("shared")? {
            Some(section) => Some(read_shared(&section)?),
            None => None,
        };
        let velocity = read_motion(&top, "velocity")?;
        let vsini = read_motion(&top, "vsini")?;
        // 3. Treat starts and priors of velocity and vsini as those of labels.
        for (name, settings) in [("velocity", velocity.settings), ("vsini", vsini.settings)] {
            if settings != LabelSettings::default() {
                labels.push((name.to_string(), settings));
            }
        }
        let spectra = match top.open_section("spectra")? {
            Some(section) => read_spectra(&section)?,
            None => SpectraSettings::default(),
        };
        Ok(ModelFile {
            velocity: velocity.entry,
            vsini: vsini.entry,
            labels,
            solver: solver.kind,
            starts: solver.starts,
            released_errors: solver.released_errors,
            velocity_scan,
            exposures,
            shared,
            spectra,
            arms,
            continuum,
            marginalise,
            path: path.to_path_buf(),
            text: text.clone(),
        })
    }

    /// Removes the arms that are not in `names`; fails if one of `names` is no arm of the file.
    ///
    /// # Errors
    /// Returns [`Error::Model`] for an arm that the file does not have.
    #[doc(hidden)]
    pub fn keep_arms(&mut self, names: &[String]) -> Result<()> {
        let arm_names: Vec<&str> = self.arms.iter().map(|arm| arm.name.as_str()).collect();
        if let Some(name) = names
            .iter()
            .find(|name| !arm_names.contains(&name.as_str()))
        {
            let hint = hint(name, arm_names.iter().copied());
            return Err(Error::model(format!(
                "{}: no arm `{name}`{hint}",
                self.path.display()
            )));
        }
        self.arms.retain(|arm| names.contains(&arm.name));
        Ok(())
    }

    /// Fits all exposures of an object together, or each spectrum by itself, whatever the file says. Exposures that are
    /// joined have one velocity unless the file gives each its own.
    #[doc(hidden)]
    pub fn join_exposures(&mut self, join: bool) {
        let velocity = self.exposures.unwrap_or(ExposureVelocity::Shared);
        self.exposures = join.then_some(velocity);
    }

    /// Opens the emulators, by paths relative to the model file's folder, and builds the model.
    ///
    /// # Errors
    /// The errors of [`open_emulator`](ModelFile::open_emulator), the emulator's `with_` methods and
    /// [`SpectralModelBuilder::build`].
    pub fn build(&self) -> Result<SpectralModel> {
        // Many arms may have the same network, which is read once and shared.
        let mut emulators: HashMap<(PathBuf, Option<PathBuf>), Arc<Emulator>> = HashMap::new();
        let open_shared = |files: &ArmFiles<'_>| {
            let paths = (
                files.emulator.to_path_buf(),
                files.wavelength.map(Path::to_path_buf),
            );
            if let Some(emulator) = emulators.get(&paths) {
                return Ok(emulator.clone());
            }
            let emulator = Arc::new(self.open_emulator(files)?);
            emulators.insert(paths, emulator.clone());
            Ok(emulator)
        };
        self.make_builder(open_shared)
            .and_then(SpectralModelBuilder::build)
            .map_err(|error| self.blame(error))
    }

    /// Builds the model with the emulators that `open` returns for the arms' files, each with its wavelengths: those in
    /// memory, for instance, or those of [`open_emulator`](ModelFile::open_emulator). Label names and activations of
    /// the model file are set here.
    ///
    /// ```
    /// use popfit::{Emulator, ModelFile};
    ///
    /// let emulator = Emulator::open("data/emulator.safetensors")?;
    /// let text = "[velocity]\nrange = [-500, 500]\n[[arm]]\nname = 'b'\nemulator = 'in memory'";
    /// let model = ModelFile::from_text("model.toml", text)?.build_with(|_| Ok(emulator.clone()))?;
    /// assert_eq!(model.arms().count(), 1);
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of `open`, the emulator's `with_` methods and [`SpectralModelBuilder::build`].
    #[doc(hidden)]
    pub fn build_with(
        &self,
        mut open: impl FnMut(&ArmFiles<'_>) -> Result<Emulator>,
    ) -> Result<SpectralModel> {
        self.make_builder(|files| open(files).map(Arc::new))
            .and_then(SpectralModelBuilder::build)
            .map_err(|error| self.blame(error))
    }

    /// Opens an arm's network and its wavelengths, relative to the folder of the model file.
    ///
    /// # Errors
    /// The errors of [`Emulator::open`], [`emulator::read_wavelength`] and [`Emulator::with_wavelength`].
    #[doc(hidden)]
    pub fn open_emulator(&self, files: &ArmFiles<'_>) -> Result<Emulator> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let emulator = Emulator::open(folder.join(files.emulator))
            .map_err(|error| self.name_key(error, files.arm, "emulator"))?;
        let Some(path) = files.wavelength else {
            return Ok(emulator);
        };
        let wavelength = emulator::read_wavelength(folder.join(path))
            .map_err(|error| self.name_key(error, files.arm, "wavelength"))?;
        emulator.with_wavelength(wavelength)
    }

    /// Puts the path of this file in front of the message of a model or bounds error; returns other errors unchanged.
    #[doc(hidden)]
    pub fn blame(&self, error: Error) -> Error {
        let path = self.path.display();
        match error {
            Error::Model { setting, message } => Error::Model {
                setting,
                message: format!("{path}: {message}"),
            },
            Error::BadBounds {
                parameter,
                lower,
                upper,
            } => Error::BadBounds {
                parameter: format!("{path}: {parameter}"),
                lower,
                upper,
            },
            other => other,
        }
    }

    /// Makes a model builder from the entries of the file and the emulators that `open` returns; fails on unknown
    /// labels.
    fn make_builder(
        &self,
        mut open: impl FnMut(&ArmFiles<'_>) -> Result<Arc<Emulator>>,
    ) -> Result<SpectralModelBuilder> {
        let mut builder = SpectralModel::builder()
            .marginalise(self.marginalise)
            .spectra(self.spectra.clone());
        let mut label_names: Vec<String> = Vec::new();
        // 1. Add the arms with their emulators.
        for entry in &self.arms {
            let files = ArmFiles {
                arm: &entry.name,
                emulator: &entry.emulator,
                wavelength: entry.wavelength.as_deref(),
            };
            let arm = make_arm(entry, open(&files)?)?;
            label_names.extend(arm.emulator.labels.iter().map(|label| label.name.clone()));
            builder = builder.add_arm(arm);
        }
        // 2. Set the exposures, shared labels, continuum, velocity and vsini.
        if let Some(velocity) = self.exposures {
            builder = builder.exposures(velocity);
        }
        if let Some(SharedLabels { column, labels }) = &self.shared {
            builder = builder.shared(column, labels);
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
        // 3. Set the labels, each of which an emulator must have.
        for (name, settings) in &self.labels {
            if !label_names.contains(name) && !["velocity", "vsini"].contains(&name.as_str()) {
                let hint = match has_default_names(&label_names) {
                    true => "; the network carries no label names: give the arm `labels = [...]`"
                        .to_string(),
                    false => hint(name, label_names.iter().map(String::as_str)),
                };
                return Err(Error::model_setting(
                    "labels",
                    format!("no emulator has a label `{name}`{hint}"),
                ));
            }
            builder = builder.label(name.clone(), settings.clone());
        }
        Ok(builder)
    }

    /// Returns the paths of the files that the model is made from: the model file, emulators and wavelength files.
    #[doc(hidden)]
    pub fn inputs(&self) -> Vec<PathBuf> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let mut paths = vec![self.path.clone()];
        for entry in &self.arms {
            paths.push(folder.join(&entry.emulator));
            if let Some(wavelength) = &entry.wavelength {
                paths.push(folder.join(wavelength));
            }
        }
        paths
    }

    /// Adds to an I/O error the key of the model file that names the unreadable file; returns other errors unchanged.
    fn name_key(&self, error: Error, arm: &str, key: &str) -> Error {
        match error {
            Error::Io { path, source } => {
                let model = self.path.display();
                let message = format!(
                    "{}; arm \"{arm}\" of {model} names this file as its `{key}` (a path is relative to the model \
                     file)",
                    in_plain_words(&path, &source)
                );
                Error::Io {
                    path,
                    source: std::io::Error::new(source.kind(), message),
                }
            }
            other => other,
        }
    }
}

/// Makes an arm of its emulator and the settings of its entry.
fn make_arm(entry: &ArmEntry, mut emulator: Arc<Emulator>) -> Result<Arm> {
    if let Some(names) = &entry.labels {
        emulator = Arc::unwrap_or_clone(emulator)
            .with_label_names(names)?
            .into();
    }
    if let Some(activation) = entry.activation {
        emulator = Arc::unwrap_or_clone(emulator)
            .with_activation(activation)?
            .into();
    }
    let mut arm = Arm::from_shared(&entry.name, emulator)
        .interpolation(entry.interpolation)
        .line_spread(entry.line_spread);
    if let Some((low, high)) = entry.range {
        arm = arm.range(low..=high);
    }
    if let Some(continuum) = entry.continuum {
        arm = arm.continuum(continuum);
    }
    arm.pixels = entry.pixels;
    Ok(arm)
}

/// Returns whether there are labels and all are called `label0`, `label1`, …, which means that the network's file gives
/// no names.
fn has_default_names(names: &[String]) -> bool {
    let is_default = |name: &String| {
        name.strip_prefix("label")
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    !names.is_empty() && names.iter().all(is_default)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
