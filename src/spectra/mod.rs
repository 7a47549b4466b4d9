//! Observed spectra: types, and readers that yield them in batches.
//!
//! Readers refuse faulty *files*. They pass on faulty values of one spectrum (NaN flux, negative ivar, an unsorted grid
//! of its own), which become that spectrum's status.

mod air;
mod arm;
pub(crate) mod arrays;
mod batch;
mod covariance;
mod exposures;
#[cfg(feature = "files")]
mod files;
#[cfg(feature = "files")]
mod fits;
#[cfg(feature = "files")]
pub(crate) mod input_files;
pub(crate) mod joined;
mod memory;
#[cfg(feature = "files")]
mod open;
mod reader;
mod widening;

pub use crate::io::column::{Column, ColumnValues};
pub use arm::{ArmSpectra, Resolution, Wavelength};
pub use batch::{Ids, Spectra};
pub use covariance::NoiseCovariance;
pub use exposures::Exposures;
#[cfg(feature = "files")]
pub use files::FilesReader;
#[cfg(feature = "files")]
pub use fits::Selection;
#[cfg(feature = "files")]
pub(crate) use input_files::InputFiles;
#[cfg(feature = "files")]
pub use open::{open_reader, open_reader_with};
pub use reader::SpectraReader;
pub use widening::Widening;
