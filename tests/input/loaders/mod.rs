//! Files of emulators and spectra: good ones are read right, bad ones are errors, never a panic, never a shorter array.

mod choices;
mod emulators;
mod hostile;
mod messages;
mod spectra;
mod written;

use std::collections::HashMap;
use std::path::Path;

use popfit::emulator::{Activation, TemplateGrid, read_wavelength};
use popfit::spectra::{ArmSpectra, Ids, SpectraReader, Wavelength, open_reader};
use popfit::{Emulator, Error, Result, Spectra};
use popfit_testing::{bools, data_folder, f32s, f64s, file, i64s, npy, npz, raw_npy, real_data};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView, serialize};

fn le64(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn le32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7 % 11) as f32 - 5.0) / 8.0).collect()
}

/// One array of an NPZ file as f64, read with npyz: another reader than popfit's.
fn reference(path: &Path, key: &str) -> (Vec<u64>, Vec<f64>) {
    let mut zip = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut zip.by_name(&format!("{key}.npy")).unwrap(), &mut bytes).unwrap();
    let array = npyz::NpyFile::new(&bytes[..]).unwrap();
    let shape = array.shape().to_vec();
    let is_f32 = array.dtype().descr() == "'<f4'";
    let values = if is_f32 {
        array.into_vec::<f32>().unwrap().into_iter().map(f64::from).collect()
    } else {
        array.into_vec::<f64>().unwrap()
    };
    (shape, values)
}
