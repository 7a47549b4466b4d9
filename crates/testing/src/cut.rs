//! The demo's network, cut to wavelength ranges that end inside the data.

use std::collections::HashMap;

use popfit::Emulator;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};

use crate::demo_emulator;

/// Returns the demo's emulator with only the pixels inside these wavelength ranges (Å).
///
/// # Panics
/// Panics if the demo's file cannot be read, or if the new file cannot be written.
pub fn cut_emulator(pieces: &[(f64, f64)]) -> Emulator {
    // 1. Find the pixels inside the ranges.
    let bytes = std::fs::read(demo_emulator()).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let whole = SafeTensors::deserialize(&bytes).unwrap();
    let wavelength = whole.tensor("wavelength").unwrap();
    let values = wavelength
        .data()
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| f64::from_le_bytes(*bytes));
    let is_pixel_kept: Vec<bool> = values
        .map(|wavelength| {
            let mut ranges = pieces.iter();
            ranges.any(|(low, high)| (*low..=*high).contains(&wavelength))
        })
        .collect();
    // 2. Cut the arrays.
    // only `wavelength` and the arrays of the last layer have a row for each pixel
    let mut arrays: HashMap<String, (Dtype, Vec<usize>, Vec<u8>)> = HashMap::new();
    for (name, tensor) in whole.tensors() {
        let mut shape = tensor.shape().to_vec();
        let mut data = tensor.data().to_vec();
        if shape[0] == is_pixel_kept.len() {
            let row_bytes = data.len() / is_pixel_kept.len();
            data = data
                .chunks(row_bytes)
                .zip(&is_pixel_kept)
                .filter(|(_, is_kept)| **is_kept)
                .flat_map(|(row, _)| row)
                .copied()
                .collect();
            shape[0] = data.len() / row_bytes;
        }
        arrays.insert(name, (tensor.dtype(), shape, data));
    }
    // 3. Write and open the new file.
    let views = arrays.iter().map(|(name, (dtype, shape, data))| {
        (
            name.clone(),
            TensorView::new(*dtype, shape.clone(), data).unwrap(),
        )
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.safetensors");
    std::fs::write(&path, serialize(views, header.metadata().clone()).unwrap()).unwrap();
    Emulator::open(path).unwrap()
}
