//! Files of emulators and spectra. Good ones are read correctly; bad ones give an error, never a panic or a shorter
//! array.

mod choices;
mod emulators;
mod hostile;
mod messages;
mod named_arrays;
mod names;
mod spectra;
mod stored;
mod written;

use popfit::emulator::{Activation, read_wavelength};
use popfit::low_level::TemplateGrid;
use popfit::spectra::{ArmSpectra, Ids, SpectraReader, Wavelength, open_reader};
use popfit::{Emulator, Error, Result, Spectra};
use popfit_testing::fits::open_bytes;
use popfit_testing::{
    array, bools, data_folder, f32s, f64s, file, i64s, le32, le64, npy, npz, raw_npy, real_data,
};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView, serialize};

/// Returns numbers between −0.625 and 0.625 without a simple pattern.
fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7 % 11) as f32 - 5.0) / 8.0).collect()
}
