//! A run as a stream, and of spectra in memory: its threads, its journal, and the times that it took.

pub mod in_memory;
pub mod journal;
pub mod profile;
pub mod stages;
pub mod summary;
pub mod workers;
