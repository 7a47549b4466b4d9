//! The manifest of a plan: all that the rows of its parts depend on.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use popfit::low_level::InputFiles;
use popfit::low_level::read_text;
use popfit::spectra::Selection;
use popfit::{Error, ModelFile, OutputFile, Result, SpectralFitter, SpectralModel};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{changed, format_error};
use crate::fit_files::{FitDevice, FitSettings};

/// Name of the manifest in the folder of a plan.
const MANIFEST: &str = "_manifest.json";
/// Version of the manifest's layout.
const VERSION: u32 = 1;
/// Largest manifest that is read (bytes).
const MAX_MANIFEST_BYTES: u64 = 4 << 30;
/// Number of hexadecimal digits of a part's hash in its name.
const HASH_DIGITS: usize = 16;

/// A plan: a run over files that is divided into parts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Manifest {
    /// Version of the manifest's layout.
    pub manifest: u32,
    /// Version of popfit that made the plan, and alone may fit its parts.
    pub popfit: String,
    /// Folder to which the paths are relative: the one in which the plan was made.
    pub folder: PathBuf,
    /// Path of the model file, to which the names of its emulators are relative. It is not read again.
    pub model: PathBuf,
    /// Text of the model file.
    pub model_text: String,
    /// Names of the arms that the model has.
    pub model_arms: Vec<String>,
    /// Hash of the model as it is built, with its wavelengths and all values, and of the settings of the fits.
    pub model_hash: String,
    /// Name and hash of each emulator file, in the order of their names.
    pub emulators: Vec<(String, String)>,
    /// Settings of the fits that the plan sets.
    pub settings: PlannedSettings,
    /// Selection of spectra and arms.
    pub selection: PlannedSelection,
    /// True if the result table has text as ids, because a file has.
    pub text_ids: bool,
    /// Files of spectra, in the order of the rows.
    pub files: Vec<PlannedFile>,
    /// Parts, in the order of the rows.
    pub parts: Vec<Part>,
    /// Hash of everything above but the parts, which the hashes of the parts begin with.
    #[serde(skip)]
    run_hash: String,
    /// Names of the parts' tables, once they have been asked for.
    #[serde(skip)]
    part_names: OnceLock<Vec<String>>,
}

/// A file of spectra in a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlannedFile {
    /// Path as it was given.
    pub path: PathBuf,
    /// Hash of the contents: XXH3 of 128 bits, of the hashes of pieces of 16 MiB where there are several.
    pub contents: String,
    /// Number of selected spectra.
    pub spectra: u64,
}

/// A part of a plan: consecutive spectra, of one file or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Part(pub Vec<PartSegment>);

/// Consecutive spectra of one file: its index in the plan, the first of its selected spectra, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSegment(pub usize, pub u64, pub u64);

/// Settings of fits in a plan, as [`FitSettings`] has them; what is open is the model file's, or popfit's default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlannedSettings {
    solver: Option<String>,
    max_rounds: Option<u32>,
    precision: String,
    velocity_scan: Option<String>,
    released_errors: Option<bool>,
    join_exposures: Option<bool>,
    starts: Option<usize>,
    seed: Option<u64>,
    strict: bool,
}

/// Selection of spectra in a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlannedSelection {
    target_ids: Option<Vec<i64>>,
    objtype: Option<String>,
    good_fibres: bool,
    min_signal_to_noise: Option<f64>,
    arms: Option<Vec<String>>,
}

impl PartSegment {
    /// Index of the file in [`Manifest::files`].
    pub fn file(self) -> usize {
        self.0
    }

    /// Indices of the spectra among those of the file that are selected.
    pub fn spectra(self) -> Range<u64> {
        self.1..self.1.saturating_add(self.2)
    }
}

impl Part {
    /// Returns the number of spectra.
    pub fn spectra(&self) -> u64 {
        self.0.iter().map(|segment| segment.2).sum()
    }
}

impl From<&FitSettings> for PlannedSettings {
    fn from(settings: &FitSettings) -> PlannedSettings {
        PlannedSettings {
            solver: settings.solver.as_ref().map(|solver| solver.name().into()),
            max_rounds: settings.max_rounds,
            precision: settings.precision.to_string(),
            velocity_scan: settings.velocity_scan.map(|scan| scan.to_string()),
            released_errors: settings.released_errors,
            join_exposures: settings.join_exposures,
            starts: settings.starts,
            seed: settings.seed,
            strict: settings.strict,
        }
    }
}

impl PlannedSettings {
    /// Sets the settings of fits to the plan's; the others stay.
    pub(super) fn apply(&self, settings: &mut FitSettings) -> Result<()> {
        settings.solver = self.solver.as_deref().map(str::parse).transpose()?;
        settings.max_rounds = self.max_rounds;
        settings.precision = self.precision.parse()?;
        settings.velocity_scan = self.velocity_scan.as_deref().map(str::parse).transpose()?;
        settings.released_errors = self.released_errors;
        settings.join_exposures = self.join_exposures;
        settings.starts = self.starts;
        settings.seed = self.seed;
        settings.strict = self.strict;
        Ok(())
    }
}

impl From<&Selection> for PlannedSelection {
    fn from(selection: &Selection) -> PlannedSelection {
        PlannedSelection {
            target_ids: selection.target_ids.clone(),
            objtype: selection.objtype.clone(),
            good_fibres: selection.good_fibres,
            min_signal_to_noise: selection.min_signal_to_noise,
            arms: selection.arms.clone(),
        }
    }
}

impl PlannedSelection {
    /// Returns the selection with which files are opened, without what the model adds to it.
    pub(super) fn selection(&self) -> Selection {
        let mut selection = Selection::default();
        selection.target_ids.clone_from(&self.target_ids);
        selection.objtype.clone_from(&self.objtype);
        selection.good_fibres = self.good_fibres;
        selection.min_signal_to_noise = self.min_signal_to_noise;
        selection.arms.clone_from(&self.arms);
        selection
    }
}

impl Manifest {
    /// Completes a manifest with its versions and its hash.
    pub(super) fn complete(mut self) -> Manifest {
        self.manifest = VERSION;
        self.popfit = env!("CARGO_PKG_VERSION").into();
        self.run_hash = self.hash_of_run();
        self
    }

    /// Returns an empty manifest, which [`complete`](Manifest::complete) completes.
    pub(super) fn empty() -> Manifest {
        Manifest {
            manifest: VERSION,
            popfit: String::new(),
            folder: PathBuf::new(),
            model: PathBuf::new(),
            model_text: String::new(),
            model_arms: Vec::new(),
            model_hash: String::new(),
            emulators: Vec::new(),
            settings: PlannedSettings::default(),
            selection: PlannedSelection::default(),
            text_ids: false,
            files: Vec::new(),
            parts: Vec::new(),
            run_hash: String::new(),
            part_names: OnceLock::new(),
        }
    }

    /// Opens the plan in a folder.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if there is no manifest, [`Error::Format`] if it is damaged or no manifest, and
    /// [`Error::Usage`] if another version of popfit made it.
    pub fn open(folder: impl AsRef<Path>) -> Result<Manifest> {
        let path = Manifest::path(folder.as_ref());
        let text = read_text(&path, MAX_MANIFEST_BYTES, "not a manifest (text)")?;
        let manifest: Manifest = serde_json::from_str(&text).map_err(|error| {
            let message = format!("is not a manifest that `popfit plan` wrote: {error}");
            format_error(&path, message)
        })?;
        if (manifest.manifest, manifest.popfit.as_str()) != (VERSION, env!("CARGO_PKG_VERSION")) {
            return Err(Error::Usage(format!(
                "{}: popfit {} made this plan, and this is popfit {}: fit its parts with that version, or make a new \
                 plan in another folder",
                path.display(),
                manifest.popfit,
                env!("CARGO_PKG_VERSION"),
            )));
        }
        manifest
            .check_parts()
            .map_err(|message| format_error(&path, message))?;
        let run_hash = manifest.hash_of_run();
        Ok(Manifest {
            run_hash,
            ..manifest
        })
    }

    /// Builds the model of the plan: of its text, and of the files that it names, which must be those of the plan. The
    /// settings are those of the plan's fits.
    pub(super) fn build_model(&self, settings: &FitSettings) -> Result<(ModelFile, SpectralModel)> {
        let path = self.folder.join(&self.model);
        let mut file = ModelFile::from_text(path, &*self.model_text)?;
        file.keep_arms(&self.model_arms)?;
        if let Some(join) = settings.join_exposures {
            file.join_exposures(join);
        }
        let model = file.build()?;
        // the folder in a name depends on where a worker is
        let mut planned: Vec<&str> = self
            .emulators
            .iter()
            .map(|(_, hash)| hash.as_str())
            .collect();
        let emulators = model.emulators();
        if let Some((_, name, _)) = emulators
            .iter()
            .find(|(_, _, hash)| !planned.contains(&hash.as_str()))
        {
            return Err(changed(Path::new(name)));
        }
        planned.retain(|planned| !emulators.iter().any(|(_, _, hash)| hash == planned));
        let mut settings = settings.clone();
        settings.device = FitDevice::Selector("cpu".into());
        // no row depends on it
        settings.batch_size = None;
        let fitter = settings.fitter(model.clone(), Some(&file))?;
        if !planned.is_empty() || model_hash(&fitter) != self.model_hash {
            return Err(Error::Usage(format!(
                "{}: a file that this model names, such as one of wavelengths, differs from the file that the plan was \
                 made with, or two have changed places: bring it back, or make a new plan in another folder",
                self.model.display()
            )));
        }
        Ok((file, model))
    }

    /// Returns the path of the manifest in a folder.
    pub(super) fn path(folder: &Path) -> PathBuf {
        folder.join(MANIFEST)
    }

    /// Writes the manifest into a folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        OutputFile::create(Manifest::path(folder), false)?.write(self.text()?)
    }

    /// Returns the manifest as JSON, with a line for each file and for each part.
    fn text(&self) -> Result<String> {
        fn json<T: Serialize>(value: &T) -> Result<String> {
            serde_json::to_string(value).map_err(|error| Error::Internal(error.to_string()))
        }
        fn list<T: Serialize>(values: &[T]) -> Result<String> {
            let lines: Vec<String> = values.iter().map(json).collect::<Result<_>>()?;
            Ok(format!("[\n{}\n]", lines.join(",\n")))
        }
        let (files, parts) = (list(&self.files)?, list(&self.parts)?);
        let without_lists = Manifest {
            files: Vec::new(),
            parts: Vec::new(),
            ..self.clone()
        };
        // files and parts are the last fields
        let head = json(&without_lists)?;
        let Some(head) = head.strip_suffix("\"files\":[],\"parts\":[]}") else {
            return Err(Error::Internal(
                "a manifest does not end with its parts".into(),
            ));
        };
        Ok(format!("{head}\n\"files\":{files},\n\"parts\":{parts}}}\n"))
    }

    /// Returns what makes this another plan than `other`; `None` if they are the same.
    pub(super) fn difference(&self, other: &Manifest) -> Option<&'static str> {
        let is_relative = |file: &PlannedFile| file.path.is_relative();
        let differences = [
            (self.model_text != other.model_text, "model file"),
            (self.emulators != other.emulators, "networks"),
            (self.model_hash != other.model_hash, "model or settings"),
            (self.selection != other.selection, "selection"),
            (self.files != other.files, "files of spectra"),
            (self.parts != other.parts, "size of parts"),
            (
                self.folder != other.folder && self.files.iter().any(is_relative),
                "folder to which paths are relative",
            ),
        ];
        let difference = differences.iter().find(|(differs, _)| *differs);
        difference.map(|(_, what)| *what)
    }

    /// Returns the number of spectra of all parts.
    pub fn spectra(&self) -> u64 {
        self.files.iter().map(|file| file.spectra).sum()
    }

    /// Returns the hash of all that the rows of a part depend on, as hexadecimal text. `None` if there is no such part.
    pub fn part_hash(&self, part: usize) -> Option<String> {
        let mut text = self.run_hash.clone();
        for PartSegment(file, first, spectra) in &self.parts.get(part)?.0 {
            let PlannedFile { path, contents, .. } = self.files.get(*file)?;
            text += &format!("\n{} {contents} {first} {spectra}", path.display());
        }
        Some(hex(text.as_bytes()))
    }

    /// Returns the name of a part's table; `None` if there is no such part.
    pub fn part_name(&self, part: usize) -> Option<&str> {
        let make_name = |part: usize| {
            let mut hash = self.part_hash(part).unwrap_or_default();
            hash.truncate(HASH_DIGITS);
            format!("part-{}-{hash}.parquet", self.number(part))
        };
        let names = self
            .part_names
            .get_or_init(|| (0..self.parts.len()).map(make_name).collect());
        names.get(part).map(String::as_str)
    }

    /// Returns a part's number with zeros before it, so that the order of names is that of the parts.
    pub(super) fn number(&self, part: usize) -> String {
        let digits = self.parts.len().saturating_sub(1).to_string().len().max(5);
        format!("{part:0digits$}")
    }

    /// Fails unless the parts have each selected spectrum once, in the order of the files.
    pub(super) fn check_parts(&self) -> std::result::Result<(), String> {
        let mut segments = self.parts.iter().flat_map(|part| &part.0).peekable();
        for (index, file) in self.files.iter().enumerate() {
            let mut next = 0;
            while let Some(segment) = segments.next_if(|segment| segment.file() == index) {
                if segment.spectra().start != next {
                    return Err(format!("damaged: the parts of file {index} have gaps"));
                }
                next = segment.spectra().end;
            }
            if next != file.spectra {
                return Err(format!("damaged: the parts lack spectra of file {index}"));
            }
        }
        match segments.next() {
            None => Ok(()),
            Some(segment) => Err(format!(
                "damaged: a part has spectra of file {}, out of turn",
                segment.file()
            )),
        }
    }

    /// Returns the hash of all that the rows depend on but the spectra.
    fn hash_of_run(&self) -> String {
        let Manifest {
            manifest: _,
            popfit,
            folder: _, // rows do not depend on where the files are
            model: _,
            model_text,
            model_arms: _, // part of the model's hash
            model_hash,
            emulators,
            settings: _, // part of the model's hash
            selection,
            text_ids,
            files: _,
            parts: _,
            run_hash: _,
            part_names: _,
        } = self;
        let emulators: BTreeSet<&str> = emulators.iter().map(|(_, hash)| hash.as_str()).collect();
        let what = (
            (popfit, model_text, model_hash, emulators),
            (selection, text_ids),
        );
        // these types have no value that JSON cannot hold
        hex(serde_json::to_string(&what).unwrap_or_default().as_bytes())
    }
}

/// Returns the hash of a fitter's model, with its wavelengths and all values, and of its settings. Emulators are left
/// out, because they have hashes of their own beside their names.
pub(super) fn model_hash(fitter: &SpectralFitter) -> String {
    let no_files = InputFiles::new(&[] as &[&Path]);
    let key = fitter.resume_key("", &Selection::default(), &no_files);
    let lines = key.lines().filter(|line| !line.starts_with("emulator "));
    hex(lines.collect::<Vec<_>>().join("\n").as_bytes())
}

/// Returns the SHA-256 of some bytes, as hexadecimal text.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * Sha256::output_size());
    for byte in Sha256::digest(bytes) {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    text
}
