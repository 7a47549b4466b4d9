//! The ways of curves through a run: whole fits, populations, and what follows a failure of the device.

pub mod engine;
pub mod objective;
pub mod passage;
pub mod passes;
pub mod retry;
pub mod run;
pub mod search;
pub mod twin;
pub mod watch;
pub mod witness;
