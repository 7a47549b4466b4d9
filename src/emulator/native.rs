//! popfit's own emulator file: safetensors with a JSON description.
//!
//! The header is read alone, capped and checked against the file's size; then each tensor is read by its offsets.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::description::Description;
use super::{Emulator, Hull, Layer, Network};
use crate::error::{Error, Result};
use crate::suggest::{find_nearest, hint};

/// Bytes; a network has tens of tensors.
const MAX_HEADER: u64 = 1 << 20;

/// Names of tensors; K counts layers and hulls from 0.
const TENSORS: [&str; 10] = [
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

/// Tensors that a message lists.
const MOST_LISTED: usize = 16;

/// Reads a network from a safetensors file of popfit's, of `size` bytes; the caller checks shapes and values, and fills
/// in the hash if the file does not have that of another file. `path` is for messages.
pub(super) fn read(path: &Path, file: impl Read + Seek, size: u64) -> Result<Emulator> {
    let mut file = Tensors::open(path, file, size)?;
    let Description {
        activation,
        activation_is_assumed,
        output,
        labels,
        hulls: axes,
        hash,
    } = file.description()?;
    let mut layers = Vec::new();
    let per_pixel = if file.has("pixels.w0") {
        Some(file.per_pixel()?)
    } else {
        None
    };
    if per_pixel.is_none() {
        layers.push(file.layer(0)?);
        while file.has(&format!("layer.{}.weight", layers.len())) {
            layers.push(file.layer(layers.len())?);
        }
    }
    let mut hulls = Vec::new();
    for (k, axes) in axes.into_iter().enumerate() {
        hulls.push(file.hull(k, axes)?);
    }
    let wavelength = if file.has("wavelength") {
        file.vector("wavelength", |x| x)?
    } else {
        Vec::new()
    };
    file.refuse_rest(layers.len())?;
    let network = per_pixel.unwrap_or(Network::Dense(layers));
    let (source, hash) = (path.display().to_string(), hash.unwrap_or_default());
    Ok(Emulator {
        source,
        hash,
        labels,
        wavelength,
        activation,
        activation_is_assumed,
        output,
        network,
        hulls,
    })
}

/// The tensors of a file that have not been read yet.
struct Tensors<R> {
    path: PathBuf,
    file: R,
    /// Offset at which the tensors' bytes begin.
    start: u64,
    metadata: HashMap<String, String>,
    tensors: HashMap<String, TensorInfo>,
    /// Names and shapes of all tensors, for messages.
    found: String,
}

/// Returns whether a tensor name is one of the format, such as `layer.0.weight`, so that it cannot be another's
/// misspelling.
fn is_known(name: &str) -> bool {
    let is_number = |text: &str| text.parse::<usize>().is_ok();
    match name.split('.').collect::<Vec<_>>().as_slice() {
        ["layer", k, part] => is_number(k) && ["weight", "bias", "scale", "offset"].contains(part),
        ["pixels", part] => ["w0", "b0", "w1", "b1"].contains(part),
        ["hull", k] => is_number(k),
        _ => name == "wavelength",
    }
}

/// Returns `NAME SHAPE` of the file's tensors for a message, sorted by name and cut after a few.
fn listed(tensors: &HashMap<String, TensorInfo>) -> String {
    let mut words: Vec<String> = tensors
        .iter()
        .map(|(name, info)| format!("{name} {:?}", info.shape))
        .collect();
    words.sort();
    if words.is_empty() {
        return "no tensor".to_string();
    }
    let more = words.len().saturating_sub(MOST_LISTED);
    words.truncate(MOST_LISTED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    words.join(", ") + &more
}

impl<R: Read + Seek> Tensors<R> {
    /// Reads the header of a safetensors file of `size` bytes; tensors are read when they are asked for.
    fn open(path: &Path, mut file: R, size: u64) -> Result<Tensors<R>> {
        let at = |offset, message: String| Error::Format {
            path: path.to_path_buf(),
            offset: Some(offset),
            message,
        };
        let mut length = [0; 8];
        file.read_exact(&mut length)
            .map_err(|_| at(0, "neither NPZ nor safetensors".to_string()))?;
        let length = u64::from_le_bytes(length);
        if length > size.saturating_sub(8) {
            // of another kind of file, the length would be its first bytes
            return Err(at(
                0,
                "neither NPZ nor safetensors: its header would end beyond the file".to_string(),
            ));
        }
        if length > MAX_HEADER {
            let message =
                format!("its header would have more than the {MAX_HEADER} bytes that popfit reads");
            return Err(Error::TooLarge {
                path: path.to_path_buf(),
                message,
            });
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(Error::io(path))?;
        let unreadable =
            |why: String| at(8, format!("the safetensors header cannot be read: {why}"));
        super::unique::check_keys(&header).map_err(|e| unreadable(e.to_string()))?;
        // the parser's own message would quote values of the file
        let header: Metadata = serde_json::from_slice(&header).map_err(|e| {
            let (line, column) = (e.line(), e.column());
            unreadable(format!(
                "it does not describe tensors as the format wants, line {line}, column {column}"
            ))
        })?;
        let start = 8 + length;
        if header.data_len() as u64 != size - start {
            return Err(at(
                start,
                format!(
                    "the tensors need {} bytes, the file has {}",
                    header.data_len(),
                    size - start
                ),
            ));
        }
        let tensors: HashMap<_, _> = header
            .tensors()
            .into_iter()
            .map(|(name, info)| (name, info.clone()))
            .collect();
        // copied, because the crate's map is another type with its feature `std` than without
        let metadata = header
            .metadata()
            .iter()
            .flatten()
            .map(|(key, text)| (key.clone(), text.clone()))
            .collect();
        let found = listed(&tensors);
        Ok(Tensors {
            path: path.to_path_buf(),
            file,
            start,
            metadata,
            tensors,
            found,
        })
    }

    /// Makes a format error with this message that names the file.
    fn fault(&self, message: impl Into<String>) -> Error {
        Error::format(&self.path, message)
    }

    /// Parses the description of the network from the file's metadata `popfit`; suggests a near key if it is missing.
    fn description(&self) -> Result<Description> {
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
        self.tensors.contains_key(name)
    }

    /// Takes a tensor of N dimensions, f32 or f64. `expected` describes it if it is missing.
    fn take<const N: usize, T>(
        &mut self,
        name: &str,
        expected: impl FnOnce() -> String,
        convert: impl Fn(f64) -> T,
    ) -> Result<([usize; N], Vec<T>)> {
        let Some(info) = self.tensors.remove(name) else {
            let near = find_nearest(
                name,
                self.tensors
                    .keys()
                    .map(String::as_str)
                    .filter(|name| !is_known(name)),
            );
            let near = near
                .map(|near| format!("; did you mean `{near}`?"))
                .unwrap_or_default();
            return Err(self.fault(format!(
                "no tensor `{name}`: expected {}{near} (found: {})",
                expected(),
                self.found
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
        let item = match info.dtype {
            Dtype::F32 => 4,
            Dtype::F64 => 8,
            other => {
                return Err(self.fault(format!(
                    "tensor `{name}` is {other}: convert it to F32 or F64"
                )));
            }
        };
        self.file
            .seek(SeekFrom::Start(self.start + begin as u64))
            .map_err(Error::io(&self.path))?;
        let mut values = Vec::with_capacity((end - begin) / item);
        for _ in 0..(end - begin) / item {
            let value = match item {
                8 => self.word().map(f64::from_le_bytes),
                _ => self.word().map(|word| f32::from_le_bytes(word).into()),
            };
            values.push(convert(value.map_err(Error::io(&self.path))?));
        }
        Ok((shape, values))
    }

    /// Reads the next N bytes of the file.
    fn word<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut word = [0; N];
        self.file.read_exact(&mut word).map(|()| word)
    }

    /// Reads the one-dimensional tensor `name` and removes it from those left, converting each value.
    fn vector<T>(&mut self, name: &str, convert: impl Fn(f64) -> T) -> Result<Vec<T>> {
        let ([_], values) = self.take(name, || "a list of numbers".to_string(), convert)?;
        Ok(values)
    }

    /// Reads weight, bias and, if there, scale and offset of layer `k`, and removes them from the tensors left.
    fn layer(&mut self, k: usize) -> Result<Layer> {
        let narrow = |x| x as f32;
        let weight_shape =
            || format!("float32 numbers (outputs, inputs), the weights of layer {k}");
        let ([outputs, inputs], weight) =
            self.take(&format!("layer.{k}.weight"), weight_shape, narrow)?;
        let bias = self.layer_vector(k, "bias", outputs)?;
        let is_scaled =
            self.has(&format!("layer.{k}.scale")) || self.has(&format!("layer.{k}.offset"));
        let affine = match is_scaled {
            true => Some((
                self.layer_vector(k, "scale", outputs)?,
                self.layer_vector(k, "offset", outputs)?,
            )),
            false => None,
        };
        Ok(Layer {
            inputs,
            outputs,
            weight,
            bias,
            affine,
        })
    }

    /// Reads the vector `name` of layer `k`, which must have `outputs` numbers, and removes it from the tensors left.
    fn layer_vector(&mut self, k: usize, name: &str, outputs: usize) -> Result<Vec<f32>> {
        let expected =
            || format!("a float32 list of {outputs} numbers, one for each output of layer {k}");
        let ([_], values) = self.take(&format!("layer.{k}.{name}"), expected, |x| x as f32)?;
        Ok(values)
    }

    /// Reads a network per pixel, and removes its tensors from those left.
    fn per_pixel(&mut self) -> Result<Network> {
        let narrow = |x| x as f32;
        let first = || {
            "float32 numbers (pixels, hidden, labels), the first weights of each pixel".to_string()
        };
        let ([pixels, hidden, _], w0) = self.take("pixels.w0", first, narrow)?;
        let mut rows = |name: &str| {
            let expected = || {
                format!("float32 numbers ({pixels}, {hidden}), of the hidden units of each pixel")
            };
            match self.take::<2, f32>(name, expected, narrow)? {
                (shape, values) if shape == [pixels, hidden] => Ok(values),
                (shape, _) => {
                    let message = format!(
                        "tensor `{name}` has the shape {shape:?}: expected {}",
                        expected()
                    );
                    Err(self.fault(message))
                }
            }
        };
        let (b0, w1) = (rows("pixels.b0")?, rows("pixels.w1")?);
        let ([_], b1) = self.take(
            "pixels.b1",
            || format!("a float32 list of {pixels} numbers"),
            narrow,
        )?;
        Ok(Network::PerPixel {
            hidden,
            w0,
            b0,
            w1,
            b1,
        })
    }

    /// Reads the facets of hull `k`, whose axes are the label indices `axes`, and removes their tensor from those left.
    fn hull(&mut self, k: usize, axes: Vec<usize>) -> Result<Hull> {
        let dimensions = axes.len();
        let expected = || {
            format!(
                "facets of hull {k}, each with the {dimensions} numbers of its normal and an offset"
            )
        };
        let ([_, columns], facets) = self.take(&format!("hull.{k}"), expected, |x| x)?;
        if columns != dimensions + 1 {
            let expected = dimensions + 1;
            return Err(self.fault(format!(
                "tensor `hull.{k}` has {columns} columns: expected {expected}, for {dimensions} labels and an offset"
            )));
        }
        Ok(Hull { axes, facets })
    }

    /// Fails if a tensor of the file was not read as part of the network, with a hint why.
    fn refuse_rest(&self, layers: usize) -> Result<()> {
        let Some(name) = self.tensors.keys().min() else {
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
            None => hint(name, TENSORS.into_iter()),
        };
        Err(self.fault(format!(
            "tensor `{name}` belongs to no part of the network{cause}"
        )))
    }
}
