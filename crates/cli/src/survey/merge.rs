//! Merge of the parts of a plan into one table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use popfit::low_level::TableReader;
use popfit::low_level::{DeviceRows, Schema, TableWriter};
use popfit::{Error, Metadata, OutputFile, Result, WriteOptions};
use serde_json::json;

use super::manifest::Manifest;
use super::{Plan, failures, format_error};

/// Name of the file that says that the merged table is written.
const SUCCESS: &str = "_SUCCESS";
/// Maximum number of missing parts that a message names.
const NAMED_PARTS: usize = 8;

/// Settings of a merge.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MergeOptions {
    /// Replace the table if it exists.
    pub overwrite: bool,
    /// Accept parts that devices of different kinds made, whose rows may differ in their last bits.
    pub mixed_devices: bool,
}

/// What was merged.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MergeSummary {
    /// Number of parts.
    pub parts: usize,
    /// Number of rows.
    pub rows: u64,
    /// Devices that made the rows.
    pub devices: Vec<String>,
}

/// Writes the parts of a plan as one table, in their order: byte for byte the table that one run on a
/// device of the same kind writes. The table's format is that of the extension of `output`. The file `_SUCCESS` is
/// written into the folder afterwards.
///
/// # Errors
/// Returns [`Error::Usage`] if parts are missing or devices of different kinds made them; [`Error::Format`] for a part
/// that is damaged, or another than its name says; [`Error::Interrupted`]; and the errors of
/// [`TableWriter`].
pub fn merge(
    plan: &Plan,
    output: impl AsRef<Path>,
    options: &MergeOptions,
    cancel: &AtomicBool,
) -> Result<MergeSummary> {
    let output = output.as_ref();
    let (folder, manifest) = (plan.folder(), plan.manifest());
    refuse_output_in_folder(output, folder)?;
    let parts = paths_of_parts(plan)?;

    // 1. See that each part is what its name says, and which devices made them.
    let mut first_parts = BTreeMap::new();
    let mut first: Option<(Schema, Metadata)> = None;
    for (part, path) in parts.iter().enumerate() {
        let reader = open_part(manifest, part, path)?;
        let device = reader.metadata.device.clone();
        first_parts.entry(device).or_insert(part);
        first.get_or_insert((reader.schema, reader.metadata));
    }
    let devices: Vec<String> = first_parts.keys().cloned().collect();
    if devices.len() > 1 && !options.mixed_devices {
        let examples = first_parts
            .iter()
            .map(|(device, part)| format!("{device} (first: part {part})"));
        return Err(Error::Usage(format!(
            "{}: devices of different kinds made the parts, whose last bits may differ: {}. Accept that \
             (--mixed-devices; mixed_devices=True in Python), or remove the parts of all kinds but one (popfit.device \
             in their metadata) and fit these again",
            folder.display(),
            examples.collect::<Vec<_>>().join("; ")
        )));
    }
    let Some((schema, mut metadata)) = first else {
        return Err(Error::Usage(format!(
            "{}: the plan has no parts",
            folder.display()
        )));
    };

    // 2. Write their rows in turn.
    metadata.device = devices.join(" + ");
    metadata.part = None;
    let options = WriteOptions {
        metadata,
        overwrite: options.overwrite,
    };
    let mut table = TableWriter::create(output, &schema, options)?;
    let mut by_rows: Vec<DeviceRows> = Vec::new();
    let mut rows = 0;
    for (part, path) in parts.iter().enumerate() {
        let mut reader = open_part(manifest, part, path)?;
        let mut rows_of_part = 0;
        while let Some(batch) = reader.next_batch()? {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Interrupted {
                    path: output.into(),
                    kept: false,
                });
            }
            rows_of_part += batch.len() as u64;
            table.append(&batch)?;
        }
        let planned = manifest.parts[part].spectra();
        if rows_of_part != planned {
            let message = format!("damaged: it has {rows_of_part} rows, and the plan {planned}");
            return Err(format_error(path, message));
        }
        rows += rows_of_part;
        for made in reader.by_rows {
            match by_rows.last_mut() {
                Some(last) if last.device == made.device => last.rows += made.rows,
                _ => by_rows.push(made),
            }
        }
    }
    table.finish_run(&by_rows, None)?;

    // 3. Say so, and remove what killed workers left.
    let success =
        json!({ "table": output.display().to_string(), "parts": parts.len(), "rows": rows });
    let written = OutputFile::create(folder.join(SUCCESS), true)
        .and_then(|file| file.write(format!("{success}\n")));
    written.map_err(|error| Error::Write {
        path: output.into(),
        message: format!("it is complete, but in the plan's folder: {error}"),
    })?;
    remove_remains(folder);
    Ok(MergeSummary {
        parts: parts.len(),
        rows,
        devices,
    })
}

/// Fails if the table would be in the folder of the plan, where it would be taken for one of the parts.
fn refuse_output_in_folder(output: &Path, folder: &Path) -> Result<()> {
    let parent = output
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let real = |path: &Path| path.canonicalize().ok();
    match real(parent.unwrap_or(Path::new("."))) == real(folder) {
        false => Ok(()),
        true => Err(Error::Usage(format!(
            "{}: the table would be in the folder of its parts, which are read as a table, too; give a name in another \
             folder",
            output.display()
        ))),
    }
}

/// Returns the paths of the parts in their order; fails if one is missing.
fn paths_of_parts(plan: &Plan) -> Result<Vec<PathBuf>> {
    let parts = 0..plan.manifest().parts.len();
    let paths: Vec<PathBuf> = parts
        .map(|part| plan.part_path(part))
        .collect::<Result<_>>()?;
    let mut missing: Vec<String> = plan.missing_parts()?.iter().map(usize::to_string).collect();
    if missing.is_empty() {
        return Ok(paths);
    }
    let causes = match plan.folder().join(failures::LIST).exists() {
        true => "; _failed.json says why some have failed",
        false => "",
    };
    let more = match missing.len().saturating_sub(NAMED_PARTS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let count = missing.len();
    missing.truncate(NAMED_PARTS);
    Err(Error::Usage(format!(
        "{}: {count} of {} parts are missing: {}{more}. Fit them (popfit fit --plan {} --take){causes}",
        plan.folder().display(),
        paths.len(),
        missing.join(", "),
        plan.folder().display(),
    )))
}

/// Opens the table of a part; fails if it is that of another part or plan.
fn open_part(manifest: &Manifest, part: usize, path: &Path) -> Result<TableReader> {
    let reader = TableReader::open(path).map_err(|error| match error {
        Error::Format { message, .. } => format_error(
            path,
            format!("{message}; remove it, and fit the part again"),
        ),
        other => other,
    })?;
    if reader.metadata.part != manifest.part_hash(part) {
        let message = format!(
            "is not part {part} of this plan, although it has its name: remove it, and fit the part again"
        );
        return Err(format_error(path, message));
    }
    match reader.notes.first() {
        None => Ok(reader),
        Some(note) => Err(format_error(
            path,
            format!(
                "has been changed since popfit wrote it: {note}; remove it, and fit the part again"
            ),
        )),
    }
}

/// Removes tables that killed workers did not complete: those that no process has locked.
fn remove_remains(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_incomplete = [".part-", "..part-"]
            .iter()
            .any(|start| name.to_string_lossy().starts_with(start));
        let is_free =
            || std::fs::File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
        if is_incomplete && is_free() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
