//! Files and data that are damaged, lie or make no sense. Each module is a subject of `TESTING.md`:
//! `cargo test --release --test input NAME::` runs one.

mod arguments;
mod bad_inputs;
mod bad_models;
mod bad_pixels;
mod fits_files;
mod joined;
mod loaders;
mod widened;
