//! How an output is written, and what it says of its run.

/// Metadata of how the table was made: Parquet's key-value metadata, FITS' HDU `METADATA`. The keys are
/// `popfit.version`, `popfit.device`, `popfit.model`, `popfit.emulator.FILE` (the file's SHA-256) and
/// `popfit.settings`; a run's own table has `popfit.rows`, too ([`TableWriter::made_by`](crate::TableWriter::made_by)).
/// The table of a part of a plan has `popfit.part`, too. `popfit.layout` is the version of the table's layout;
/// `popfit.status` and `popfit.flags` say what the codes of these columns mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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

impl Metadata {
    /// Sets the text of the model file that the metadata keep.
    #[must_use]
    pub fn model(mut self, text: impl Into<String>) -> Metadata {
        self.model = text.into();
        self
    }

    /// Sets the name and hash of each emulator file that the metadata keep.
    #[must_use]
    pub fn emulators(mut self, emulators: Vec<(String, String)>) -> Metadata {
        self.emulators = emulators;
        self
    }

    /// Sets the name of the part of a plan (`popfit plan`) that the table is.
    #[must_use]
    pub fn part(mut self, name: impl Into<String>) -> Metadata {
        self.part = Some(name.into());
        self
    }

    /// Sets the name of the device that the metadata keep.
    #[must_use]
    pub fn device(mut self, name: impl Into<String>) -> Metadata {
        self.device = name.into();
        self
    }
}

/// Options with which a table or a page is written. The default replaces no file and describes no run.
///
/// ```
/// use popfit::{FitTable, WriteOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("results.csv");
/// let table = FitTable::new(vec!["teff".into()]);
/// table.write(&path)?;
/// assert!(matches!(table.write(&path), Err(popfit::Error::OutputExists { .. })));
/// table.write_with(&path, WriteOptions::default().overwrite(true))?;
/// # Ok::<(), popfit::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// True if a file of the same name is replaced. Otherwise such a file is
    /// [`Error::OutputExists`](crate::Error::OutputExists).
    pub overwrite: bool,
    /// Description of the run that made the table, for formats that have room for it.
    pub metadata: Metadata,
}

impl WriteOptions {
    /// Sets whether a file that exists at the path is replaced; otherwise that is an error. The old file stays until
    /// the new one is whole.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> WriteOptions {
        self.overwrite = overwrite;
        self
    }

    /// Sets the description of the run (device, model, settings) that is written into the file.
    #[must_use]
    pub fn metadata(mut self, metadata: Metadata) -> WriteOptions {
        self.metadata = metadata;
        self
    }
}

impl From<&Metadata> for WriteOptions {
    /// Returns the default options with this description.
    fn from(metadata: &Metadata) -> WriteOptions {
        WriteOptions::default().metadata(metadata.clone())
    }
}
