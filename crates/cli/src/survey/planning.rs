//! Division of a run over files into parts.

use std::path::Path;

use popfit::low_level::InputFiles;
use popfit::low_level::checks::{check_spectra, list_notes, list_pixel_notes};
use popfit::spectra::{FilesReader, SpectraReader};
use popfit::{Control, Error, Metadata, ModelFile, Result, SpectralModel};

use super::Plan;
use super::manifest::{Manifest, Part, PartSegment, PlannedFile, model_hash};
use crate::fit_files::{BuiltModel, Event, FitDevice, FitFiles, FitModel};
use crate::output::Format;
use crate::selection;

/// Size of the parts of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartSize {
    /// So many parts, as equal as whole files allow.
    Parts(u64),
    /// Parts of about so many spectra.
    Spectra(u64),
}

impl PartSize {
    /// Returns the number of parts of a run over so many spectra.
    fn parts(self, spectra: u64) -> u64 {
        match self {
            PartSize::Parts(parts) => parts,
            PartSize::Spectra(size) => spectra.div_ceil(size.max(1)),
        }
        .clamp(1, spectra.max(1))
    }
}

/// Divides the run that `files` describe into parts, and writes its manifest into the folder [`FitFiles::output`],
/// which is made if it is missing. All inputs are opened and checked as before a run, and read once for their hashes.
/// A folder that has the same plan already is left as it is.
///
/// # Errors
/// Returns the errors of [`fit_files`](crate::fit_files) before its first fit; [`Error::Usage`] for a layout other
/// than popfit's table, for models, a page, resume or overwrite, which are not those of a plan, and for a folder that
/// has another plan; and [`Error::Interrupted`].
pub fn plan(mut files: FitFiles, size: PartSize, control: &Control) -> Result<Plan> {
    control.scope(|| plan_here(&mut files, size, control))?
}

/// Makes the plan in the current pool of threads.
fn plan_here(files: &mut FitFiles, size: PartSize, control: &Control) -> Result<Plan> {
    refuse_outputs(files)?;
    // 1. Open the model and the spectra, and refuse what cannot be fitted.
    selection::check(&files.selection, files.option_names)?;
    let model_path = match &files.model {
        FitModel::Path(path) => Some(path.clone()),
        FitModel::Built(built) => {
            let inputs = built.file.as_ref().map(ModelFile::inputs);
            inputs.and_then(|inputs| inputs.into_iter().next())
        }
    };
    let model_path = model_path.ok_or_else(in_memory)?;
    let BuiltModel { model, text, file } = files.open_model()?;
    refuse_shared_labels(&model)?;
    files.selection = model.complete_selection(std::mem::take(&mut files.selection));
    let mut inputs = InputFiles::new(&files.spectra);
    let source = FilesReader::open(&files.spectra, &files.selection)?;
    selection::refuse_empty(&files.selection, source.len())?;
    if source.is_empty() {
        let message = "no spectrum is selected, so that there is nothing to plan";
        return Err(Error::Usage(message.into()));
    }
    let arms = model.arms().map(|(arm, _)| arm.to_string()).collect();
    // the plan's rows do not depend on the device that a worker will have
    files.settings.batch_size = None;
    files.settings.device = FitDevice::Selector("cpu".into());
    let fitter = files.settings.fitter(model, file.as_ref())?;
    let heads = source.files();
    check_spectra(&fitter, &heads).map_err(|error| match &file {
        Some(file) => file.blame(error),
        None => error,
    })?;
    let notes = fitter.model().assumptions().into_iter();
    let notes: Vec<String> = notes.chain(source.notes().iter().cloned()).collect();
    notes
        .into_iter()
        .for_each(|note| files.report(Event::Note(note)));
    let advice: Vec<String> = heads
        .iter()
        .flat_map(|head| list_notes(&fitter, head))
        .chain(list_pixel_notes(&fitter, &heads))
        .collect();
    advice
        .into_iter()
        .for_each(|advice| files.report(Event::Advice(advice)));

    // 2. Hash the inputs.
    if !inputs.read(&control.cancel)? {
        return Err(Error::Interrupted {
            path: files.output.clone(),
            kept: false,
        });
    }
    let described = files.spectra.iter().zip(inputs.contents());
    let planned: Vec<PlannedFile> = described
        .zip(source.lengths())
        .map(|((path, contents), spectra)| PlannedFile {
            path: path.clone(),
            contents,
            spectra,
        })
        .collect();

    // 3. Divide the spectra, and write the manifest.
    let mut manifest = Manifest::empty();
    manifest.folder = std::env::current_dir().map_err(|source| Error::Io {
        path: Path::new(".").into(),
        source,
    })?;
    manifest.model = model_path;
    manifest.model_text = text;
    manifest.model_arms = arms;
    manifest.model_hash = model_hash(&fitter);
    manifest.emulators = Metadata::of(&fitter).emulators;
    manifest.settings = (&files.settings).into();
    manifest.selection = (&files.selection).into();
    manifest.text_ids = source.text_ids();
    manifest.parts = divide(&planned, size);
    manifest.files = planned;
    let manifest = manifest.complete();
    manifest
        .build_model(&files.settings)
        .map_err(|error| match error {
            Error::Format { .. } | Error::Io { .. } => in_memory(),
            other => other,
        })?;
    inputs.check()?;
    write(&manifest, &files.output)?;
    Ok(Plan::new(&files.output, manifest))
}

/// Returns the error for a model whose networks are not in files.
fn in_memory() -> Error {
    let message = "a plan needs a model whose networks are in files, because each of its workers opens them: save the \
                   model and its networks, and give the model file";
    Error::Usage(message.into())
}

/// Fails for outputs and settings that a plan does not have.
fn refuse_outputs(files: &FitFiles) -> Result<()> {
    let names = files.option_names;
    let unsuited = [
        (files.models.is_some(), "models"),
        (files.report.is_some(), "report"),
        (files.resume, "resume"),
        (files.overwrite, "overwrite"),
        (files.per_file, "per_file"),
        (files.skip_existing, "skip_existing"),
        (files.input_root.is_some(), "input_root"),
        (files.format != Format::Table, "format"),
    ];
    match unsuited.iter().find(|(is_given, _)| *is_given) {
        None => Ok(()),
        Some((_, name)) => Err(Error::Usage(format!(
            "{}: a plan makes popfit's own table in parts, and has no such setting",
            names.of(name)
        ))),
    }
}

/// Fails if spectra share labels: a part has a range of a file's spectra, and would divide clusters.
fn refuse_shared_labels(model: &SpectralModel) -> Result<()> {
    match model.shared() {
        None => Ok(()),
        Some(shared) => Err(Error::Usage(format!(
            "shared: spectra with the same `{}` share labels, and the parts of a plan would divide them: fit the files \
             without a plan, or leave out `shared`",
            shared.column
        ))),
    }
}

/// Writes the manifest into the folder, unless it is there.
fn write(manifest: &Manifest, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|source| Error::Io {
        path: folder.into(),
        source,
    })?;
    if !Manifest::path(folder).exists() {
        return manifest.write(folder);
    }
    match Manifest::open(folder)?.difference(manifest) {
        None => Ok(()),
        Some(what) => Err(Error::Usage(format!(
            "{}: the folder has another plan, which differs in its {what}; choose another folder, or remove this one \
             with its parts",
            folder.display()
        ))),
    }
}

/// Divides the spectra of the files into parts of about the same size, at most as many as `size` asks for.
///
/// A file that is no larger than a part goes whole into the part in which its middle lies: reading a piece of a file
/// costs opening and hashing all of it. A larger file is cut where parts end.
fn divide(files: &[PlannedFile], size: PartSize) -> Vec<Part> {
    let spectra: u64 = files.iter().map(|file| file.spectra).sum();
    let parts = size.parts(spectra);
    let part_of = |place: u64| u128::from(place) * u128::from(parts) / u128::from(spectra.max(1));
    let spectra_per_part = spectra.div_ceil(parts);
    let mut divided: Vec<(u128, Part)> = Vec::new();
    let mut first_of_file = 0;
    for (index, file) in files.iter().enumerate() {
        let mut first = 0;
        while first < file.spectra {
            let (part, count) = if file.spectra <= spectra_per_part {
                (part_of(first_of_file + file.spectra / 2), file.spectra)
            } else {
                let part = part_of(first_of_file + first);
                let next_part =
                    (u128::from(spectra) * (part + 1)).div_ceil(u128::from(parts)) as u64;
                (part, (next_part - first_of_file).min(file.spectra) - first)
            };
            let segment = PartSegment(index, first, count);
            match divided.last_mut() {
                Some((last, part_before)) if *last == part => part_before.0.push(segment),
                _ => divided.push((part, Part(vec![segment]))),
            }
            first += count;
        }
        first_of_file += file.spectra;
    }
    divided.into_iter().map(|(_, part)| part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(spectra: &[u64]) -> Vec<PlannedFile> {
        let file = |spectra: &u64| PlannedFile {
            path: "spectra.npz".into(),
            contents: String::new(),
            spectra: *spectra,
        };
        spectra.iter().map(file).collect()
    }

    #[test]
    fn parts_have_each_spectrum_once_and_about_the_same_size() {
        for spectra in [
            &[64, 64, 64][..],
            &[1000],
            &[0, 5, 0, 0, 7, 1, 0],
            &[500; 40],
            &[3, 9000, 2, 2, 2, 100, 7],
            &[0],
        ] {
            let files = files(spectra);
            for size in [1, 2, 3, 7, 1000] {
                let parts = divide(&files, PartSize::Parts(size));
                let total: u64 = spectra.iter().sum();
                assert!(parts.len() as u64 <= size);
                assert!(parts.iter().all(|part| part.spectra() > 0));
                let largest = parts.iter().map(Part::spectra).max().unwrap_or(0);
                assert!(largest <= 3 * total.div_ceil(size), "{spectra:?} in {size}");
                let mut manifest = Manifest::empty();
                manifest.files.clone_from(&files);
                manifest.parts = parts;
                assert_eq!(manifest.check_parts(), Ok(()));
            }
        }
    }

    #[test]
    fn small_files_stay_whole_and_large_ones_are_cut() {
        let whole = |index, spectra| PartSegment(index, 0, spectra);
        let parts = divide(&files(&[64, 64, 64, 64]), PartSize::Spectra(130));
        assert_eq!(
            parts,
            [
                Part(vec![whole(0, 64), whole(1, 64)]),
                Part(vec![whole(2, 64), whole(3, 64)])
            ]
        );
        let parts = divide(&files(&[100]), PartSize::Parts(3));
        assert_eq!(
            parts,
            [
                Part(vec![PartSegment(0, 0, 34)]),
                Part(vec![PartSegment(0, 34, 33)]),
                Part(vec![PartSegment(0, 67, 33)])
            ]
        );
    }
}
