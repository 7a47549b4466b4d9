//! Networks in the NPZ files of The Payne (Ting et al. 2019) and binspec (El-Badry et al. 2018).
//!
//! Both scale labels by z = (x − x_min)/(x_max − x_min) − ½, carry neither a wavelength grid nor names, and put out
//! flux as it is. binspec's, told apart by its three-dimensional `w_array_0`, is a tiny sigmoid network a pixel. The
//! Payne's is dense. Its file does not say the activation, which was sigmoid in the networks of 2019 and is leaky ReLU
//! in later ones.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::path::Path;

use super::{Activation, Emulator, Label, Layer, Network, Transform};
use crate::error::{Error, Result};
use crate::io::npz::{Archive, Array};

/// Returns the maximum number of bytes that the arrays of a network may hold: the file's length and 32 MiB, because
/// weights hardly compress.
pub(super) fn budget(archive: &Archive) -> u64 {
    archive.file_length().saturating_add(32 << 20)
}

/// Reads a network from an NPZ file of The Payne (dense) or binspec (one per pixel); the caller checks values and fills
/// in the hash.
pub(super) fn open(path: &Path) -> Result<Emulator> {
    let mut archive = Archive::open(path)?;
    let mut budget = budget(&archive);
    let keys = archive.keys();
    if keys.iter().any(|key| key.starts_with("flux"))
        && !keys.iter().any(|key| key.starts_with("w_array"))
    {
        let message = "this is a file of spectra, not of a network: it has fluxes and no weights";
        return Err(Error::format(path, message.to_string()));
    }
    let w0 = weights(&mut archive, "w_array_0", &mut budget)?;
    let (network, activation) = match w0.shape.len() {
        3 => (
            per_pixel(&mut archive, w0, &mut budget)?,
            Activation::Sigmoid,
        ),
        _ => (dense(&mut archive, w0, &mut budget)?, Activation::LeakyRelu),
    };
    let x_min = archive.read("x_min", &mut budget, |x| x)?;
    let x_max = archive.read("x_max", &mut budget, |x| x)?;
    if x_min.shape.len() != 1 || x_min.shape != x_max.shape {
        let shapes = format!("x_min {:?} and x_max {:?}", x_min.shape, x_max.shape);
        return Err(Error::format(
            path,
            format!("{shapes} must both be (labels,)"),
        ));
    }
    let ranges = x_min.values.iter().zip(&x_max.values).enumerate();
    Ok(Emulator {
        source: path.display().to_string(),
        hash: String::new(),
        labels: ranges.map(|(k, (&min, &max))| label(k, min, max)).collect(),
        wavelength: Vec::new(),
        activation,
        activation_is_assumed: matches!(network, Network::Dense(_)),
        output: Activation::Identity,
        network,
        hulls: Vec::new(),
    })
}

/// Makes the label `label{k}` of input `k`, with The Payne's scaling of min to max to −½ to ½ (the file has no names).
fn label(k: usize, min: f64, max: f64) -> Label {
    Label {
        name: format!("label{k}"),
        unit: String::new(),
        transform: Transform::Identity,
        mean: 0.5 * (min + max),
        std: max - min,
        min,
        max,
    }
}

/// Reads an array as f32, and subtracts its bytes from `budget`, the most that may still be read.
fn weights(archive: &mut Archive, key: &str, budget: &mut u64) -> Result<Array<f32>> {
    archive.read(key, budget, |x| x as f32)
}

/// Reads a dense network of three layers, whose first weights are `w0`; fails if the file has more.
fn dense(archive: &mut Archive, w0: Array<f32>, budget: &mut u64) -> Result<Network> {
    let mut layers = vec![layer(archive, 0, w0, budget)?];
    for k in 1..3 {
        let weight = weights(archive, &format!("w_array_{k}"), budget)?;
        layers.push(layer(archive, k, weight, budget)?);
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

/// Makes layer `k` from its weights (outputs, inputs), after reading its biases `b_array_{k}`; fails if an array has
/// other dimensions.
fn layer(archive: &mut Archive, k: usize, weight: Array<f32>, budget: &mut u64) -> Result<Layer> {
    let [outputs, inputs] = expect(archive, &format!("w_array_{k}"), &weight)?;
    let bias = weights(archive, &format!("b_array_{k}"), budget)?;
    let [_] = expect(archive, &format!("b_array_{k}"), &bias)?;
    Ok(Layer {
        inputs,
        outputs,
        weight: weight.values,
        bias: bias.values,
        affine: None,
    })
}

/// Reads a network per pixel, whose first weights `w0` are (pixels, hidden, labels); fails if shapes disagree.
fn per_pixel(archive: &mut Archive, w0: Array<f32>, budget: &mut u64) -> Result<Network> {
    let [pixels, hidden, _] = expect(archive, "w_array_0", &w0)?;
    let w1 = weights(archive, "w_array_1", budget)?;
    let b0 = weights(archive, "b_array_0", budget)?;
    let b1 = weights(archive, "b_array_1", budget)?;
    let shapes = [
        expect(archive, "w_array_1", &w1)?,
        expect(archive, "b_array_0", &b0)?,
    ];
    if shapes != [[pixels, hidden]; 2] || expect(archive, "b_array_1", &b1)? != [pixels] {
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
fn expect<const N: usize>(archive: &Archive, key: &str, array: &Array<f32>) -> Result<[usize; N]> {
    array.shape.as_slice().try_into().map_err(|_| {
        let message = format!(
            "`{key}` has the shape {:?}, not {N} dimensions",
            array.shape
        );
        Error::format(archive.path(), message)
    })
}
