//! Writes popfit's own emulator file.

use safetensors::tensor::{Dtype, TensorView, serialize};

use super::{Emulator, Layer, Network, description};

/// A tensor to be written, little-endian.
struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Tensor {
    /// Makes a tensor of this name and shape from `values`, stored as little-endian f32.
    fn f32(name: String, shape: Vec<usize>, values: &[f32]) -> Tensor {
        Tensor { name, dtype: Dtype::F32, shape, bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect() }
    }

    /// Makes a tensor of this name and shape from `values`, stored as little-endian f64.
    fn f64(name: String, shape: Vec<usize>, values: &[f64]) -> Tensor {
        Tensor { name, dtype: Dtype::F64, shape, bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect() }
    }
}

/// Serialises a dense network as the bytes of a popfit safetensors file, always the same ones for the same network.
pub(super) fn bytes(emulator: &Emulator) -> Result<Vec<u8>, String> {
    if emulator.activation_is_assumed {
        return Err("the file it comes from does not say its activation, and an assumption must not become a fact: \
                    name the activation with Emulator::with_activation, then write it"
            .to_string());
    }
    let Network::Dense(layers) = &emulator.network else {
        return Err("it is a network per pixel, which popfit's own format cannot hold; keep its NPZ file".to_string());
    };
    let mut tensors: Vec<Tensor> = layers.iter().enumerate().flat_map(|(k, layer)| of_layer(k, layer)).collect();
    if !emulator.wavelength.is_empty() {
        tensors.push(Tensor::f64("wavelength".to_string(), vec![emulator.wavelength.len()], &emulator.wavelength));
    }
    for (k, hull) in emulator.hulls.iter().enumerate() {
        let columns = hull.axes.len() + 1;
        tensors.push(Tensor::f64(format!("hull.{k}"), vec![hull.facets.len() / columns, columns], &hull.facets));
    }
    let mut views = Vec::new();
    for Tensor { name, dtype, shape, bytes } in &tensors {
        let view = TensorView::new(*dtype, shape.clone(), bytes).map_err(|e| format!("{name}: {e}"))?;
        views.push((name.as_str(), view));
    }
    let metadata = [("popfit".to_string(), description::text(emulator))];
    serialize(views, Some(metadata.into_iter().collect())).map_err(|e| e.to_string())
}

/// Returns the tensors of layer `k`: weight (outputs, inputs), bias, and scale and offset if it has them.
fn of_layer(k: usize, layer: &Layer) -> Vec<Tensor> {
    let Layer { inputs, outputs, weight, bias, affine } = layer;
    let mut tensors = vec![
        Tensor::f32(format!("layer.{k}.weight"), vec![*outputs, *inputs], weight),
        Tensor::f32(format!("layer.{k}.bias"), vec![*outputs], bias),
    ];
    if let Some((scale, offset)) = affine {
        tensors.push(Tensor::f32(format!("layer.{k}.scale"), vec![*outputs], scale));
        tensors.push(Tensor::f32(format!("layer.{k}.offset"), vec![*outputs], offset));
    }
    tensors
}
