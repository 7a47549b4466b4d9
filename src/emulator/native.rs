//! popfit's own emulator file: safetensors with a JSON description.
//!
//! The header is read first, limited and checked against the file's size. Then each tensor is read by its offsets.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::description::Description;
use super::{Emulator, Hull, Layer, Network};
use crate::error::{Error, Result};
use crate::suggest::{find_nearest, hint};

/// Maximum size of the header. A network has tens of tensors.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Names of tensors; K counts layers and hulls from 0.
const TENSOR_NAMES: [&str; 10] = [
    "layer.K.weight",
    "layer.K.bias",
    "layer.K.scale",
    "layer.K.offset",
    "pixels.w0",
    "pixels.b0",
    "pixels.w1",
    "pixels.b1",
    "hull.K",
    "wavelength",
];

/// Maximum number of tensors that a message lists.
const MAX_LISTED_TENSORS: usize = 16;

/// Reads a network from popfit's safetensors file of `size` bytes. The caller checks shapes and values, and sets the
/// hash unless the file's description has one. `path` is for messages.
pub(super) fn read_network(path: &Path, file: impl Read + Seek, size: u64) -> Result<Emulator> {
    let mut file = TensorFile::open(path, file, size)?;
    let description = file.read_description()?;
    // 1. Read a network per pixel, or layers until there is none.
    let mut layer_count = 0;
    let network = if file.has("pixels.w0") {
        file.read_per_pixel()?
    } else {
        let mut layers = vec![file.read_layer(0)?];
        while file.has(&format!("layer.{}.weight", layers.len())) {
            layers.push(file.read_layer(layers.len())?);
        }
        layer_count = layers.len();
        Network::Dense(layers)
    };
    // 2. Read hulls and wavelengths.
    let mut hulls = Vec::new();
    for (k, axes) in description.hulls.into_iter().enumerate() {
        hulls.push(file.read_hull(k, axes)?);
    }
    let wavelength = if file.has("wavelength") {
        file.read_vector("wavelength", |x| x)?
    } else {
        Vec::new()
    };
    // 3. Refuse a file with further tensors.
    file.refuse_unread_tensors(layer_count)?;
    Ok(Emulator {
        source: path.display().to_string(),
        hash: description.hash.unwrap_or_default(),
        labels: description.labels,
        wavelength,
        activation: description.activation,
        activation_is_assumed: description.activation_is_assumed,
        output: description.output,
        network,
        hulls,
    })
}

/// A file, with the tensors that have not been read yet.
struct TensorFile<R> {
    path: PathBuf,
    file: R,
    /// Offset at which the tensors' bytes begin.
    start: u64,
    metadata: HashMap<String, String>,
    unread: HashMap<String, TensorInfo>,
    /// Names and shapes of all tensors, for messages.
    tensor_list: String,
}

/// Returns whether a tensor name is one of the format, such as `layer.0.weight`, and not a misspelling.
fn is_tensor_name(name: &str) -> bool {
    let is_number = |text: &str| text.parse::<usize>().is_ok();
    match name.split('.').collect::<Vec<_>>().as_slice() {
        ["layer", k, part] => is_number(k) && ["weight", "bias", "scale", "offset"].contains(part),
        ["pixels", part] => ["w0", "b0", "w1", "b1"].contains(part),
        ["hull", k] => is_number(k),
        _ => name == "wavelength",
    }
}

/// Returns `NAME SHAPE` of the file's tensors for a message, sorted by name and cut after a few.
fn list_tensors(tensors: &HashMap<String, TensorInfo>) -> String {
    let mut entries: Vec<String> = tensors
        .iter()
        .map(|(name, info)| format!("{name} {:?}", info.shape))
        .collect();
    entries.sort();
    if entries.is_empty() {
        return "no tensor".to_string();
    }
    let omitted = entries.len().saturating_sub(MAX_LISTED_TENSORS);
    entries.truncate(MAX_LISTED_TENSORS);
    let mut list = entries.join(", ");
    if omitted > 0 {
        list += &format!(" and {omitted} more");
    }
    list
}

impl<R: Read + Seek> TensorFile<R> {
    /// Reads the header of a safetensors file of `size` bytes; tensors are read when they are asked for.
    fn open(path: &Path, mut file: R, size: u64) -> Result<TensorFile<R>> {
        let fault_at = |offset, message: String| Error::Format {
            path: path.to_path_buf(),
            offset: Some(offset),
            message,
        };
        // 1. Read the length of the header.
        let mut length = [0; 8];
        file.read_exact(&mut length)
            .map_err(|_| fault_at(0, "neither NPZ nor safetensors".to_string()))?;
        let length = u64::from_le_bytes(length);
        if length > size.saturating_sub(8) {
            // In a file of another kind, these are any bytes.
            return Err(fault_at(
                0,
                "neither NPZ nor safetensors: its header would end beyond the file".to_string(),
            ));
        }
        if length > MAX_HEADER_BYTES {
            let message = format!(
                "its header would have more than the {MAX_HEADER_BYTES} bytes that popfit reads"
            );
            return Err(Error::TooLarge {
                path: path.to_path_buf(),
                message,
            });
        }
        // 2. Read the header.
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(Error::io(path))?;
        let header_fault =
            |cause: String| fault_at(8, format!("the safetensors header cannot be read: {cause}"));
        super::unique::check_unique_keys(&header)
            .map_err(|error| header_fault(error.to_string()))?;
        // The parser's own message would quote values of the file.
        let header: Metadata = serde_json::from_slice(&header).map_err(|error| {
            header_fault(format!(
                "it does not describe tensors as the format wants, line {}, column {}",
                error.line(),
                error.column()
            ))
        })?;
        // 3. Check the file's size.
        let start = 8 + length;
        if header.data_len() as u64 != size - start {
            return Err(fault_at(
                start,
                format!(
                    "the tensors need {} bytes, the file has {}",
                    header.data_len(),
                    size - start
                ),
            ));
        }
        let unread: HashMap<_, _> = header
            .tensors()
            .into_iter()
            .map(|(name, info)| (name, info.clone()))
            .collect();
        // The entries are copied, because the type of the crate's map depends on its feature `std`.
        let metadata = header
            .metadata()
            .iter()
            .flatten()
            .map(|(key, text)| (key.clone(), text.clone()))
            .collect();
        let tensor_list = list_tensors(&unread);
        Ok(TensorFile {
            path: path.to_path_buf(),
            file,
            start,
            metadata,
            unread,
            tensor_list,
        })
    }

    /// Returns the format error with this message, which names the file.
    fn fault(&self, message: impl Into<String>) -> Error {
        Error::format(&self.path, message)
    }

    /// Parses the description of the network from the file's metadata `popfit`; suggests a near key if it is missing.
    fn read_description(&self) -> Result<Description> {
        let text = self.metadata.get("popfit").ok_or_else(|| {
            let hint = hint("popfit", self.metadata.keys().map(String::as_str));
            self.fault(format!(
                "no metadata `popfit`: expected a JSON text that describes the network{hint}"
            ))
        })?;
        Description::parse(text)
            .map_err(|message| self.fault(format!("metadata `popfit`: {message}")))
    }

    /// Returns whether the file has a tensor of this name.
    fn has(&self, name: &str) -> bool {
        self.unread.contains_key(name)
    }

    /// Reads a tensor of N dimensions, f32 or f64, and converts each value. `expected` describes the tensor if it is
    /// missing.
    fn read_tensor<const N: usize, T>(
        &mut self,
        name: &str,
        expected: impl FnOnce() -> String,
        convert: impl Fn(f64) -> T,
    ) -> Result<([usize; N], Vec<T>)> {
        // 1. Find the tensor, and check its shape and type.
        let Some(info) = self.unread.remove(name) else {
            let similar_name = find_nearest(
                name,
                self.unread
                    .keys()
                    .map(String::as_str)
                    .filter(|name| !is_tensor_name(name)),
            );
            let hint = similar_name
                .map(|similar| format!("; did you mean `{similar}`?"))
                .unwrap_or_default();
            return Err(self.fault(format!(
                "no tensor `{name}`: expected {}{hint} (found: {})",
                expected(),
                self.tensor_list
            )));
        };
        let shape: [usize; N] = info.shape.as_slice().try_into().map_err(|_| {
            self.fault(format!(
                "tensor `{name}` has the shape {:?}: expected {}",
                info.shape,
                expected()
            ))
        })?;
        let (begin, end) = info.data_offsets;
        let value_bytes = match info.dtype {
            Dtype::F32 => 4,
            Dtype::F64 => 8,
            dtype => {
                return Err(self.fault(format!(
                    "tensor `{name}` is {dtype}: convert it to F32 or F64"
                )));
            }
        };
        // 2. Read its values.
        self.file
            .seek(SeekFrom::Start(self.start + begin as u64))
            .map_err(Error::io(&self.path))?;
        let count = (end - begin) / value_bytes;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            let value = match value_bytes {
                8 => self.read_bytes().map(f64::from_le_bytes),
                _ => self
                    .read_bytes()
                    .map(|bytes| f32::from_le_bytes(bytes).into()),
            };
            values.push(convert(value.map_err(Error::io(&self.path))?));
        }
        Ok((shape, values))
    }

    /// Reads the next N bytes of the file.
    fn read_bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes).map(|()| bytes)
    }

    /// Reads a one-dimensional tensor, and converts each value.
    fn read_vector<T>(&mut self, name: &str, convert: impl Fn(f64) -> T) -> Result<Vec<T>> {
        let ([_], values) = self.read_tensor(name, || "a list of numbers".to_string(), convert)?;
        Ok(values)
    }

    /// Reads weight, bias and, if the layer has them, scale and offset of layer `k`.
    fn read_layer(&mut self, k: usize) -> Result<Layer> {
        let expected = || format!("float32 numbers (outputs, inputs), the weights of layer {k}");
        let ([outputs, inputs], weight) =
            self.read_tensor(&format!("layer.{k}.weight"), expected, |x| x as f32)?;
        let bias = self.read_layer_vector(k, "bias", outputs)?;
        let is_scaled =
            self.has(&format!("layer.{k}.scale")) || self.has(&format!("layer.{k}.offset"));
        let affine = if is_scaled {
            let scale = self.read_layer_vector(k, "scale", outputs)?;
            let offset = self.read_layer_vector(k, "offset", outputs)?;
            Some((scale, offset))
        } else {
            None
        };
        Ok(Layer {
            inputs,
            outputs,
            weight,
            bias,
            affine,
        })
    }

    /// Reads the vector `name` of layer `k`, which should have `outputs` numbers.
    fn read_layer_vector(&mut self, k: usize, name: &str, outputs: usize) -> Result<Vec<f32>> {
        let expected =
            || format!("a float32 list of {outputs} numbers, one for each output of layer {k}");
        let ([_], values) =
            self.read_tensor(&format!("layer.{k}.{name}"), expected, |x| x as f32)?;
        Ok(values)
    }

    /// Reads a network per pixel.
    fn read_per_pixel(&mut self) -> Result<Network> {
        let expected_w0 = || {
            "float32 numbers (pixels, hidden, labels), the first weights of each pixel".to_string()
        };
        let ([pixels, hidden, _], w0) = self.read_tensor("pixels.w0", expected_w0, |x| x as f32)?;
        let b0 = self.read_hidden_rows("pixels.b0", pixels, hidden)?;
        let w1 = self.read_hidden_rows("pixels.w1", pixels, hidden)?;
        let expected_b1 = || format!("a float32 list of {pixels} numbers");
        let ([_], b1) = self.read_tensor("pixels.b1", expected_b1, |x| x as f32)?;
        Ok(Network::PerPixel {
            hidden,
            w0,
            b0,
            w1,
            b1,
        })
    }

    /// Reads a tensor with one number per pixel and hidden unit.
    fn read_hidden_rows(&mut self, name: &str, pixels: usize, hidden: usize) -> Result<Vec<f32>> {
        let expected =
            || format!("float32 numbers ({pixels}, {hidden}), of the hidden units of each pixel");
        let (shape, values) = self.read_tensor::<2, f32>(name, expected, |x| x as f32)?;
        if shape != [pixels, hidden] {
            return Err(self.fault(format!(
                "tensor `{name}` has the shape {shape:?}: expected {}",
                expected()
            )));
        }
        Ok(values)
    }

    /// Reads the facets of hull `k`, whose axes are the label indices `axes`, and removes their tensor from those left.
    fn read_hull(&mut self, k: usize, axes: Vec<usize>) -> Result<Hull> {
        let dimensions = axes.len();
        let expected = || {
            format!(
                "facets of hull {k}, each with the {dimensions} numbers of its normal and an offset"
            )
        };
        let ([_, columns], facets) = self.read_tensor(&format!("hull.{k}"), expected, |x| x)?;
        if columns != dimensions + 1 {
            return Err(self.fault(format!(
                "tensor `hull.{k}` has {columns} columns: expected {}, for {dimensions} labels and an offset",
                dimensions + 1
            )));
        }
        Ok(Hull { axes, facets })
    }

    /// Fails if a tensor of the file was not read as part of the network, with a hint why.
    fn refuse_unread_tensors(&self, layers: usize) -> Result<()> {
        let Some(name) = self.unread.keys().min() else {
            return Ok(());
        };
        let cause = match name.strip_prefix("layer.") {
            Some(_) if layers == 0 => {
                ": a network has either `layer.0.weight` or `pixels.w0`".to_string()
            }
            Some(_) => format!(
                ": without `layer.{layers}.weight` the network ends with layer {}",
                layers - 1
            ),
            None if name.starts_with("pixels.") => {
                ": without `pixels.w0` it is no network per pixel".to_string()
            }
            None if name.starts_with("hull.") => {
                ": `hull` in the metadata says which labels each hull acts on".to_string()
            }
            None => hint(name, TENSOR_NAMES.into_iter()),
        };
        Err(self.fault(format!(
            "tensor `{name}` belongs to no part of the network{cause}"
        )))
    }
}
