//! The routes of curves through a run, as small fits or in populations: recordings, searches, checks of a GPU's
//! results, and repetition after a failure of the device.

pub mod columns;
pub mod engine;
pub mod multi_start;
pub mod objective;
pub mod populations;
pub mod retry;
pub mod route;
pub mod run;
pub mod second_start;
pub mod sink;
pub mod small_fits;
pub mod tie;
pub mod twin;
pub mod verify;
