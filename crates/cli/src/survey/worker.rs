//! A worker, which fits parts of a plan.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;

use popfit::low_level::InputFiles;
use popfit::low_level::{Schema, TableWriter};
use popfit::spectra::{FilesReader, Selection};
use popfit::{Control, Error, Metadata, Result, SpectralFitter};

use super::Plan;
use super::changed;
use super::failures::{self, FailedPart};
use super::lease::{Lease, Taken};
use super::manifest::PartSegment;
use super::range::SpectraRange;
use crate::fit_files::{FitSettings, StatusCount};
use crate::rows::CountingSink;

/// A worker: the fitter of a plan, which fits one part after another.
pub struct Worker {
    plan: Plan,
    selection: Selection,
    fitter: SpectralFitter,
}

/// How the fit of a part ended.
#[derive(Debug)]
pub enum PartOutcome {
    /// The part was there, or another worker was faster.
    AlreadyThere,
    /// The worker fitted and wrote it.
    Fitted(FittedPart),
}

/// A part that a worker has fitted and written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FittedPart {
    /// Number of spectra.
    pub spectra: u64,
    /// Number of rows of each status, the converged ones first.
    pub statuses: Vec<StatusCount>,
}

/// Limits of a worker that looks for free parts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TakeOptions {
    /// Maximum number of parts that are taken; all that are free unless set.
    pub most: Option<usize>,
    /// Number of errors after which a part is left alone.
    pub attempts: usize,
    /// Time without a sign of life after which the part of another worker is taken over.
    pub lease: Duration,
}

impl Default for TakeOptions {
    fn default() -> TakeOptions {
        TakeOptions {
            most: None,
            attempts: 3,
            lease: Duration::from_secs(600),
        }
    }
}

/// What a worker that looked for free parts has done, and what is left.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct TakeSummary {
    /// Number of parts that the worker fitted.
    pub parts: usize,
    /// Number of spectra in them.
    pub spectra: u64,
    /// Number of parts that are not there yet, because other workers fit them or the limit was reached.
    pub left: usize,
    /// Parts that failed as often as they may.
    pub failed: Vec<FailedPart>,
}

impl Worker {
    /// Opens the plan in a folder, its model, and a device. Of the settings only those of the device and the size of
    /// batches count: the others are the plan's.
    ///
    /// # Errors
    /// Returns the errors of [`Plan::open`], of model files and devices, and [`Error::Format`] if an emulator is
    /// another than the plan's.
    pub fn open(folder: impl AsRef<Path>, mut settings: FitSettings) -> Result<Worker> {
        let plan = Plan::open(folder)?;
        let manifest = plan.manifest();
        manifest.settings.apply(&mut settings)?;
        let (file, model) = manifest.build_model(&settings)?;
        let selection = model.complete_selection(manifest.selection.selection());
        let fitter = settings.fitter(model, Some(&file))?;
        Ok(Worker {
            plan,
            selection,
            fitter,
        })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Fits a part and writes its table, unless that is there already.
    ///
    /// # Errors
    /// Returns [`Error::Usage`] if the plan has no such part, [`Error::Format`] for a file that is another than that of
    /// the plan, [`Error::InputChanged`] for one that is written to meanwhile, [`Error::Interrupted`] if `control`
    /// ended the fits, and the errors of readers, of fits and of the table's writer. Of a part that is not whole
    /// nothing is left.
    pub fn fit_part(&self, part: usize, control: &Control) -> Result<PartOutcome> {
        control.scope(|| self.fit_part_here(part, control))?
    }

    /// Fits a part in the current pool of threads.
    fn fit_part_here(&self, part: usize, control: &Control) -> Result<PartOutcome> {
        let path = self.plan.part_path(part)?;
        let manifest = self.plan.manifest();
        if path.exists() {
            return Ok(PartOutcome::AlreadyThere);
        }
        // 1. Open the part's files, which must be those of the plan.
        let segments = manifest.parts.get(part).map_or(&[][..], |part| &part.0);
        let mut names = Vec::new();
        let mut planned = Vec::new();
        for segment in segments {
            let file = &manifest.files[segment.file()];
            names.push(file.path.clone());
            planned.push(file);
        }
        let paths: Vec<PathBuf> = names
            .iter()
            .map(|name| manifest.folder.join(name))
            .collect();
        let mut inputs = InputFiles::new(&paths);
        let reader = FilesReader::open_part(&manifest.folder, &names, &self.selection)?;
        let interrupted = || Error::Interrupted {
            path: path.clone(),
            kept: false,
        };
        if !inputs.read(&control.cancel)? {
            return Err(interrupted());
        }
        let read = inputs.contents().into_iter().zip(reader.lengths());
        for (((contents, spectra), planned), path) in read.zip(planned).zip(&paths) {
            if contents != planned.contents || spectra != planned.spectra {
                return Err(changed(path));
            }
        }
        let first = segments
            .first()
            .map_or(0, |PartSegment(_, first, _)| *first);
        let count: u64 = segments.iter().map(|PartSegment(_, _, count)| count).sum();
        let mut source = SpectraRange::new(reader, first..first + count);

        // 2. Fit its spectra. Another worker may write the same part.
        let metadata = Metadata {
            model: manifest.model_text.clone(),
            emulators: manifest.emulators.clone(),
            part: Some(manifest.part_hash(part).unwrap_or_default()),
            ..Metadata::of(&self.fitter)
        };
        let schema = Schema::of(&self.fitter, manifest.text_ids);
        let mut table = TableWriter::create_racing(&path, &schema, &metadata)?;
        let mut sink = CountingSink::new(&mut table, &self.fitter.parameters(), None);
        let summary = self
            .fitter
            .clone()
            .control(control.clone())
            .fit_stream(&mut source, &mut sink)?;
        let statuses = sink.counts.list();
        if summary.interrupted > 0 {
            return Err(interrupted());
        }
        inputs.check()?;

        // 3. Give it its name, unless another worker was faster.
        match table.finish_run(&summary.by_rows, None) {
            Ok(()) => {
                failures::forget(&self.plan, part);
                Ok(PartOutcome::Fitted(FittedPart {
                    spectra: summary.fits,
                    statuses,
                }))
            }
            Err(Error::OutputExists { .. }) => Ok(PartOutcome::AlreadyThere),
            Err(error) => Err(error),
        }
    }

    /// Fits free parts, one after another, until none is left that is neither there, nor fitted by another worker, nor
    /// has failed too often. `report` is called with each part that this worker fits and what came of it.
    ///
    /// # Errors
    /// Returns [`Error::Interrupted`] if `control` ended the fits, and the errors of this worker's device and of the
    /// folder. The errors of parts, such as those of their files, are kept, and the parts tried again.
    pub fn take_parts(
        &self,
        options: &TakeOptions,
        control: &Control,
        mut report: impl FnMut(usize, &Result<PartOutcome>),
    ) -> Result<TakeSummary> {
        let mut done = TakeSummary::default();
        let mut has_taken = true;
        while has_taken {
            has_taken = false;
            let mut missing = self.plan.missing_parts()?;
            // Workers begin at different parts, so that they seldom look for the same one.
            let start = random_number() as usize % missing.len().max(1);
            missing.rotate_left(start);
            for part in missing {
                if options.most.is_some_and(|most| done.parts >= most) {
                    break;
                }
                let Some(_lease) = self.take(part, options)? else {
                    continue;
                };
                let outcome = self.fit_part(part, control);
                report(part, &outcome);
                match outcome {
                    Ok(PartOutcome::AlreadyThere) => {}
                    Ok(PartOutcome::Fitted(fitted)) => {
                        done.parts += 1;
                        done.spectra += fitted.spectra;
                        has_taken = true;
                    }
                    Err(error) if self.is_own(&error) => return Err(error),
                    Err(error) => {
                        self.plan.record_failure(part, &error.to_string())?;
                        has_taken = true;
                    }
                }
            }
            if options.most.is_some_and(|most| done.parts >= most) {
                break;
            }
        }
        done.failed = self.plan.write_failure_list(options.attempts)?;
        let missing = self.plan.missing_parts()?.len();
        done.left = missing.saturating_sub(done.failed.len());
        if done.left == 0 {
            self.end_silent_leases(options)?;
        }
        Ok(done)
    }

    /// Ends the silent leases of finished parts: a worker may be killed after its part is there, and before its lease
    /// ends.
    fn end_silent_leases(&self, options: &TakeOptions) -> Result<()> {
        for part in self.plan.finished_parts_with_lease()? {
            let path = self.plan.note_path("lease", part);
            drop(Lease::take(&path, &worker_name(), options.lease)?);
        }
        Ok(())
    }

    /// Takes the lease of a part that is to be fitted; `None` if it is there, has failed too often, or another worker
    /// fits it.
    fn take(&self, part: usize, options: &TakeOptions) -> Result<Option<Lease>> {
        let is_open = || !self.plan.has_part(part) && !self.plan.has_failed(part, options.attempts);
        if !is_open() {
            return Ok(None);
        }
        let path = self.plan.note_path("lease", part);
        let lease = match Lease::take(&path, &worker_name(), options.lease)? {
            Taken::Held => return Ok(None),
            Taken::Free(lease) => lease,
            Taken::Silent(lease, former) => {
                self.plan.record_loss(part, &former)?;
                lease
            }
        };
        // its worker may have ended in between
        Ok(is_open().then_some(lease))
    }

    /// Returns whether an error is that of this worker, or of the user who ends it, and not that of a part: other
    /// workers may well fit the part, and this one no other.
    fn is_own(&self, error: &Error) -> bool {
        match error {
            Error::Interrupted { .. }
            | Error::Device { .. }
            | Error::DeviceLost { .. }
            | Error::DeviceUntrusted { .. }
            | Error::OutOfMemory { .. } => true,
            Error::Io { path, .. } | Error::Write { path, .. } | Error::Unsettled { path, .. } => {
                self.is_output(path)
            }
            _ => false,
        }
    }

    /// Returns whether workers write this file. Files of spectra may be in the same folder.
    fn is_output(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.trim_start_matches('.');
        let is_note = ["part-", "lease-", "failed-"]
            .iter()
            .any(|kind| name.starts_with(kind));
        path == self.plan.folder() || (path.parent() == Some(self.plan.folder()) && is_note)
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("plan", &self.plan.folder())
            .finish_non_exhaustive()
    }
}

/// Returns a number that another worker hardly has, whatever the machine or container.
pub(super) fn random_number() -> u64 {
    // the keys of a new hasher are random
    RandomState::new().build_hasher().finish()
}

/// Returns the name by which other workers know this one: its machine and process.
fn worker_name() -> String {
    let machine = ["HOSTNAME", "SLURMD_NODENAME", "COMPUTERNAME"];
    let machine = machine.iter().find_map(|name| std::env::var(name).ok());
    let machine = machine.or_else(|| std::fs::read_to_string("/etc/hostname").ok());
    let machine = machine.unwrap_or_else(|| "a machine".into());
    format!("process {} on {}", std::process::id(), machine.trim())
}
