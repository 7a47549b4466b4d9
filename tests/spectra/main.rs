//! Fits of spectra: minima, errors, flags, bits, and what a run says of itself. Each module is a subject of
//! `TESTING.md`: `cargo test --release --test spectra NAME::` runs one.

mod arms;
mod banded;
mod calibration;
mod constraints;
mod control;
mod desi;
mod determinism;
mod ends;
mod evaluate;
mod exposures;
mod flags;
mod jitter;
mod knowledge;
mod lent_spectra;
mod line_spread;
mod loss;
mod mask_rest;
mod masks;
mod minima;
mod mixed;
mod null_device;
mod per_pixel;
mod pixels;
mod posterior;
mod predict;
mod profile;
mod rotation;
mod shared;
mod simplex;
mod small_files;
mod stages;
mod synb;
mod synb_rotation;
mod units;
mod workspaces;
