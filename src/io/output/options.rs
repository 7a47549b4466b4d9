//! How an output is written, and what it says of its run.

/// Metadata of how the table was made: Parquet's key-value metadata, FITS' HDU `METADATA`. The keys are
/// `popfit.version`, `popfit.device`, `popfit.model`, `popfit.emulator.FILE` (the file's SHA-256) and
/// `popfit.settings`; a run's own table has `popfit.rows`, too ([`Summary::by_rows`](crate::Summary::by_rows)).
/// The table of a part of a plan has `popfit.part`, too. `popfit.layout` is the version of the table's layout;
/// `popfit.status` and `popfit.flags` say what the codes of these columns mean. Fields may be added: end a literal with
/// `..Metadata::default()`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// Name of the device that fitted.
    pub device: String,
    /// Text of the model file.
    pub model: String,
    /// Name and hash of each emulator file.
    pub emulators: Vec<(String, String)>,
    /// Settings of the solver, as text.
    pub settings: String,
    /// Name of the part of a plan that the table is; `None` for a table of a whole run.
    pub part: Option<String>,
}

/// Options with which a table or a page is written. The default replaces no file and describes no run. Fields may
/// be added: end a literal with `..WriteOptions::default()`.
///
/// ```
/// use popfit::{FitTable, WriteOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("results.csv");
/// let table = FitTable::new(vec!["teff".into()]);
/// table.write(&path)?;
/// assert!(matches!(table.write(&path), Err(popfit::Error::OutputExists { .. })));
/// table.write_with(&path, WriteOptions { overwrite: true, ..WriteOptions::default() })?;
/// # Ok::<(), popfit::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// True if a file of the same name is replaced. Otherwise such a file is
    /// [`Error::OutputExists`](crate::Error::OutputExists). The old file stays until the new one is whole.
    pub overwrite: bool,
    /// Description of the run that made the table, for formats that have room for it.
    pub metadata: Metadata,
}

impl From<&Metadata> for WriteOptions {
    /// Returns the default options with this description.
    fn from(metadata: &Metadata) -> WriteOptions {
        WriteOptions {
            metadata: metadata.clone(),
            ..WriteOptions::default()
        }
    }
}
