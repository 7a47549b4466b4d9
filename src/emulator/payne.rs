//! Networks in the NPZ files of The Payne (Ting et al. 2019) and binspec (El-Badry et al. 2018).
//!
//! Both scale labels by z = (x − x_min)/(x_max − x_min) − ½, have neither a wavelength grid nor names, and their
//! outputs are the flux itself. binspec's, recognised by a three-dimensional `w_array_0`, is a tiny sigmoid network per
//! pixel. The Payne's is dense. Its file does not name the activation, which was sigmoid in the networks of 2019 and is
//! leaky ReLU in later ones.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::path::Path;

use super::{Activation, Emulator, Label, Layer, Network};
use crate::error::{Error, Result};
use crate::io::npz::{Archive, Array};

/// Returns the maximum number of bytes that the arrays of a network may hold: the file's length and 32 MiB, because
/// weights hardly compress.
pub(super) fn byte_budget(archive: &Archive) -> u64 {
    archive.file_length().saturating_add(32 << 20)
}

/// Reads a network from an NPZ file of The Payne (dense) or binspec (one per pixel); the caller checks values and fills
/// in the hash.
pub(super) fn read_network(path: &Path) -> Result<Emulator> {
    let mut archive = Archive::open(path)?;
    let mut budget = byte_budget(&archive);
    // 1. Refuse a file of spectra.
    let has_key = |prefix: &str| archive.keys().iter().any(|key| key.starts_with(prefix));
    if has_key("flux") && !has_key("w_array") {
        let message = "this is a file of spectra, not of a network: it has fluxes and no weights";
        return Err(Error::format(path, message.to_string()));
    }
    // 2. Read the network: one per pixel if the first weights have three dimensions.
    let w0 = read_f32(&mut archive, "w_array_0", &mut budget)?;
    let is_per_pixel = w0.shape.len() == 3;
    let (network, activation) = if is_per_pixel {
        let network = read_per_pixel(&mut archive, w0, &mut budget)?;
        (network, Activation::Sigmoid)
    } else {
        let network = read_dense(&mut archive, w0, &mut budget)?;
        (network, Activation::LeakyRelu)
    };
    // 3. Read the training ranges of the labels.
    let x_min = archive.read("x_min", &mut budget, |x| x)?;
    let x_max = archive.read("x_max", &mut budget, |x| x)?;
    if x_min.shape.len() != 1 || x_min.shape != x_max.shape {
        let shapes = format!("x_min {:?} and x_max {:?}", x_min.shape, x_max.shape);
        return Err(Error::format(
            path,
            format!("{shapes} must both be (labels,)"),
        ));
    }
    let mut labels = Vec::with_capacity(x_min.values.len());
    for (k, (&min, &max)) in x_min.values.iter().zip(&x_max.values).enumerate() {
        labels.push(Label::new(format!("label{k}"), "", min..=max));
    }
    Ok(Emulator {
        source: path.display().to_string(),
        hash: String::new(),
        labels,
        wavelength: Vec::new(),
        activation,
        activation_is_assumed: !is_per_pixel,
        output: Activation::Identity,
        network,
        hulls: Vec::new(),
    })
}

/// Reads an array as f32, and subtracts its bytes from `budget`, the maximum that may still be read.
fn read_f32(archive: &mut Archive, key: &str, budget: &mut u64) -> Result<Array<f32>> {
    archive.read(key, budget, |x| x as f32)
}

/// Reads a dense network of three layers, whose first weights are `w0`; fails if the file has more.
fn read_dense(archive: &mut Archive, w0: Array<f32>, budget: &mut u64) -> Result<Network> {
    let mut layers = vec![read_layer(archive, 0, w0, budget)?];
    for k in 1..3 {
        let weight = read_f32(archive, &format!("w_array_{k}"), budget)?;
        layers.push(read_layer(archive, k, weight, budget)?);
    }
    if archive
        .keys()
        .iter()
        .any(|key| key == "w_array_3" || key == "b_array_3")
    {
        return Err(Error::format(archive.path(), "more than three layers"));
    }
    Ok(Network::Dense(layers))
}

/// Returns layer `k` from its weights (outputs, inputs), after reading its biases `b_array_{k}`; fails if an array has
/// other dimensions.
fn read_layer(
    archive: &mut Archive,
    k: usize,
    weight: Array<f32>,
    budget: &mut u64,
) -> Result<Layer> {
    let [outputs, inputs] = shape_of(archive, &format!("w_array_{k}"), &weight)?;
    let bias = read_f32(archive, &format!("b_array_{k}"), budget)?;
    let [_] = shape_of(archive, &format!("b_array_{k}"), &bias)?;
    Ok(Layer {
        inputs,
        outputs,
        weight: weight.values,
        bias: bias.values,
        affine: None,
    })
}

/// Reads a network per pixel, whose first weights `w0` are (pixels, hidden, labels); fails if shapes disagree.
fn read_per_pixel(archive: &mut Archive, w0: Array<f32>, budget: &mut u64) -> Result<Network> {
    let [pixels, hidden, _] = shape_of(archive, "w_array_0", &w0)?;
    let w1 = read_f32(archive, "w_array_1", budget)?;
    let b0 = read_f32(archive, "b_array_0", budget)?;
    let b1 = read_f32(archive, "b_array_1", budget)?;
    let shapes = [
        shape_of(archive, "w_array_1", &w1)?,
        shape_of(archive, "b_array_0", &b0)?,
    ];
    if shapes != [[pixels, hidden]; 2] || shape_of(archive, "b_array_1", &b1)? != [pixels] {
        let shapes = format!(
            "w_array_1 {:?}, b_array_0 {:?}, b_array_1 {:?}",
            w1.shape, b0.shape, b1.shape
        );
        let message = format!("{shapes} for {pixels} pixels and {hidden} hidden units");
        return Err(Error::format(archive.path(), message));
    }
    Ok(Network::PerPixel {
        hidden,
        w0: w0.values,
        b0: b0.values,
        w1: w1.values,
        b1: b1.values,
    })
}

/// Returns the shape of an array of N dimensions.
fn shape_of<const N: usize>(
    archive: &Archive,
    key: &str,
    array: &Array<f32>,
) -> Result<[usize; N]> {
    array.shape.as_slice().try_into().map_err(|_| {
        let message = format!(
            "`{key}` has the shape {:?}, not {N} dimensions",
            array.shape
        );
        Error::format(archive.path(), message)
    })
}
