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
    /// Returns a tensor of this name and shape from `values`, stored as little-endian f32.
    fn from_f32(name: String, shape: Vec<usize>, values: &[f32]) -> Tensor {
        Tensor {
            name,
            dtype: Dtype::F32,
            shape,
            bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    /// Returns a tensor of this name and shape from `values`, stored as little-endian f64.
    fn from_f64(name: String, shape: Vec<usize>, values: &[f64]) -> Tensor {
        Tensor {
            name,
            dtype: Dtype::F64,
            shape,
            bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }
}

/// Serialises a network as the bytes of a popfit safetensors file, which are always the same for the same network.
/// `hash` is the hash of the file from which the network was read, if it is to be kept.
pub(super) fn serialise(emulator: &Emulator, hash: Option<&str>) -> Result<Vec<u8>, String> {
    // 1. Convert the network, the grid and the hulls to tensors.
    let mut tensors: Vec<Tensor> = match &emulator.network {
        Network::Dense(layers) => layers
            .iter()
            .enumerate()
            .flat_map(|(k, layer)| layer_tensors(k, layer))
            .collect(),
        Network::PerPixel {
            hidden,
            w0,
            b0,
            w1,
            b1,
        } => {
            let pixels = b1.len();
            let labels = emulator.labels.len();
            let tensor = |name: &str, shape: &[usize], values| {
                Tensor::from_f32(name.into(), shape.into(), values)
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
        tensors.push(Tensor::from_f64(
            "wavelength".to_string(),
            vec![emulator.wavelength.len()],
            &emulator.wavelength,
        ));
    }
    for (k, hull) in emulator.hulls.iter().enumerate() {
        let columns = hull.axes.len() + 1;
        tensors.push(Tensor::from_f64(
            format!("hull.{k}"),
            vec![hull.facets.len() / columns, columns],
            &hull.facets,
        ));
    }
    // 2. Serialise them with the description.
    let mut views = Vec::new();
    for tensor in &tensors {
        let name = tensor.name.as_str();
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes)
            .map_err(|error| format!("{name}: {error}"))?;
        views.push((name, view));
    }
    let description = description::serialise(emulator, hash);
    let metadata = [("popfit".to_string(), description)];
    serialize(views, Some(metadata.into_iter().collect())).map_err(|error| error.to_string())
}

/// Returns the tensors of layer `k`: weight (outputs, inputs), bias, and scale and offset if it has them.
fn layer_tensors(k: usize, layer: &Layer) -> Vec<Tensor> {
    let outputs = layer.outputs;
    let weight_shape = vec![outputs, layer.inputs];
    let mut tensors = vec![
        Tensor::from_f32(format!("layer.{k}.weight"), weight_shape, &layer.weight),
        Tensor::from_f32(format!("layer.{k}.bias"), vec![outputs], &layer.bias),
    ];
    if let Some((scale, offset)) = &layer.affine {
        tensors.push(Tensor::from_f32(
            format!("layer.{k}.scale"),
            vec![outputs],
            scale,
        ));
        tensors.push(Tensor::from_f32(
            format!("layer.{k}.offset"),
            vec![outputs],
            offset,
        ));
    }
    tensors
}
