//! The search for minima: populations of one shape of spectra, the passes through them, further starts, and the checks
//! of a device.

pub mod again;
pub mod fold;
pub mod pass;
pub mod poor;
pub mod posterior;
pub mod shared;
pub mod shared_population;
pub mod shared_populations;
pub mod simplices;
pub mod solve;
pub mod verify;
pub mod waiting;
