//! Facts about a run for the page.

use std::time::Duration;

use crate::io::output::Metadata;
use crate::setters::setters;

/// Facts about the run that the page gives beside its rows.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct About {
    /// Name of the result table.
    pub title: String,
    /// Version of popfit that made the fits, if the table names it.
    pub version: Option<String>,
    /// Metadata of the result table.
    pub metadata: Metadata,
    /// Units of parameters, by name. Those that popfit knows need not be given.
    pub units: Vec<(String, String)>,
    /// Duration of the run.
    pub time: Option<Duration>,
    /// Number of fits from an earlier run, which took none of that time.
    pub recalled: u64,
}

setters!(About {
    /// Replaces [`title`](#structfield.title).
    title: String;
    /// Replaces [`version`](#structfield.version).
    version: String, Some;
    /// Replaces [`metadata`](#structfield.metadata).
    metadata: Metadata;
    /// Replaces [`units`](#structfield.units).
    units: Vec<(String, String)>;
    /// Replaces [`time`](#structfield.time).
    time: Duration, Some;
    /// Replaces [`recalled`](#structfield.recalled).
    recalled: u64;
});
