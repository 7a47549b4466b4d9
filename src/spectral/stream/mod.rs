//! A run as a stream: its threads, its journal, and the times that it took.

pub mod journal;
pub mod profile;
pub mod stages;
pub mod summary;
pub mod workers;
