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
        Tensor {
            name,
            dtype: Dtype::F32,
            shape,
            bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    /// Makes a tensor of this name and shape from `values`, stored as little-endian f64.
    fn f64(name: String, shape: Vec<usize>, values: &[f64]) -> Tensor {
        Tensor {
            name,
            dtype: Dtype::F64,
            shape,
            bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }
}

/// Serialises a network as the bytes of a popfit safetensors file, always the same ones for the same network. `hash` is
/// that of the file which the network came from, if it is to keep it.
pub(super) fn bytes(emulator: &Emulator, hash: Option<&str>) -> Result<Vec<u8>, String> {
    let mut tensors: Vec<Tensor> = match &emulator.network {
        Network::Dense(layers) => layers
            .iter()
            .enumerate()
            .flat_map(|(k, layer)| of_layer(k, layer))
            .collect(),
        Network::PerPixel {
            hidden,
            w0,
            b0,
            w1,
            b1,
        } => {
            let [pixels, labels] = [b1.len(), emulator.labels.len()];
            let tensor = |name: &str, shape: &[usize], values| {
                Tensor::f32(name.into(), shape.into(), values)
            };
            vec![
                tensor("pixels.w0", &[pixels, *hidden, labels], w0),
                tensor("pixels.b0", &[pixels, *hidden], b0),
                tensor("pixels.w1", &[pixels, *hidden], w1),
                tensor("pixels.b1", &[pixels], b1),
            ]
        }
    };
    if !emulator.wavelength.is_empty() {
        tensors.push(Tensor::f64(
            "wavelength".to_string(),
            vec![emulator.wavelength.len()],
            &emulator.wavelength,
        ));
    }
    for (k, hull) in emulator.hulls.iter().enumerate() {
        let columns = hull.axes.len() + 1;
        tensors.push(Tensor::f64(
            format!("hull.{k}"),
            vec![hull.facets.len() / columns, columns],
            &hull.facets,
        ));
    }
    let mut views = Vec::new();
    for Tensor {
        name,
        dtype,
        shape,
        bytes,
    } in &tensors
    {
        let view =
            TensorView::new(*dtype, shape.clone(), bytes).map_err(|e| format!("{name}: {e}"))?;
        views.push((name.as_str(), view));
    }
    let metadata = [("popfit".to_string(), description::text(emulator, hash))];
    serialize(views, Some(metadata.into_iter().collect())).map_err(|e| e.to_string())
}

/// Returns the tensors of layer `k`: weight (outputs, inputs), bias, and scale and offset if it has them.
fn of_layer(k: usize, layer: &Layer) -> Vec<Tensor> {
    let Layer {
        inputs,
        outputs,
        weight,
        bias,
        affine,
    } = layer;
    let mut tensors = vec![
        Tensor::f32(format!("layer.{k}.weight"), vec![*outputs, *inputs], weight),
        Tensor::f32(format!("layer.{k}.bias"), vec![*outputs], bias),
    ];
    if let Some((scale, offset)) = affine {
        tensors.push(Tensor::f32(
            format!("layer.{k}.scale"),
            vec![*outputs],
            scale,
        ));
        tensors.push(Tensor::f32(
            format!("layer.{k}.offset"),
            vec![*outputs],
            offset,
        ));
    }
    tensors
}
