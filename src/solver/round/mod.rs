//! What a round does to members once they are evaluated: `step`, `halve` and `compact`. On GPUs these are kernels of
//! their own, the shaders of the same names.

pub mod compact;
pub mod halve;
pub mod step;
