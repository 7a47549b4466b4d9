//! Building blocks below the fitters: recordings, devices, the loop of rounds, and single problems for other
//! optimisers.
//!
//! These interfaces follow popfit's implementation. They may change in any release, even a patch release. The rest of
//! the crate follows Semantic Versioning.

#[allow(missing_docs, reason = "the fields of plain data are said in one text")]
#[path = "buffers/mod.rs"]
pub mod buffers;
#[path = "cpu/mod.rs"]
pub mod cpu;
#[cfg(feature = "gpu")]
#[path = "gpu/mod.rs"]
pub mod gpu;
#[allow(missing_docs, reason = "the fields of plain data are said in one text")]
#[path = "kernels/mod.rs"]
pub mod kernels;
#[allow(missing_docs, reason = "the fields of plain data are said in one text")]
#[path = "recording/mod.rs"]
pub mod recording;
#[allow(
    missing_docs,
    reason = "the seams' structs say in one text what their fields are"
)]
#[allow(
    missing_debug_implementations,
    reason = "written-out models are functions"
)]
#[path = "solver/mod.rs"]
pub mod solver;

/// The HTML report of `popfit fit` and `popfit report`.
#[cfg(feature = "files")]
pub mod report {
    pub use crate::report::{
        About, Collector, MOST_REQUESTED, PickedCounts, ReportFile, fitter_of_table, picture,
    };
}

/// Checks of a fitter against files of spectra before a run.
pub mod checks {
    pub use crate::spectral::{
        ArmCoverage, check_spectra, list_notes, list_pixel_notes, measure_coverage,
    };
}

pub use crate::device::{AvailableDevices, DeviceDescription, DeviceKind, NullDevice};
pub use crate::emulator::grid::{GridSegment, TemplateGrid};
pub use crate::flag::{FLAG_DESCRIPTIONS, FlagDescription};
#[doc(hidden)]
pub use crate::io::faults;
#[cfg(feature = "files")]
pub use crate::io::files::read_text;
#[cfg(feature = "files")]
pub use crate::io::memory::read_memory_peak;
#[cfg(feature = "files")]
pub use crate::io::npz;
#[cfg(feature = "files")]
pub use crate::model::ArmFiles;
pub use crate::model::SharedLabels;
pub use crate::names::printable;
pub use crate::spectra::arrays::{ArrayValues, NamedArray};
#[cfg(feature = "files")]
pub use crate::spectra::input_files::InputFiles;
pub use crate::spectra::joined::JoinedReader;
pub use crate::spectral::{
    DeviceProfile, DeviceRows, DeviceStage, FlagCounts, HostStage, Journal, Profile, Rounds, Schema,
};
#[cfg(feature = "files")]
pub use crate::table::{ModelWriter, TableReader, TableWriter, models_path};
pub use crate::task::{Job, Task};
