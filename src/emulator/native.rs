//! popfit's own emulator file: safetensors with a JSON description.
//!
//! The header is read alone, capped and checked against the file's size; then each tensor is read by its offsets.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::Deserialize;

use super::{Activation, Emulator, Hull, Label, Layer, Network, Transform};
use crate::error::{Error, Result};
use crate::files;

/// Bytes; a network has tens of tensors.
const MAX_HEADER: u64 = 1 << 20;

/// The metadata `popfit`. Unknown keys are notes.
#[derive(Deserialize)]
struct Description {
    version: u32,
    activation: String,
    output: String,
    labels: Vec<LabelDescription>,
    #[serde(default)]
    medium: Option<String>,
    #[serde(default = "default_clip")]
    clip: f64,
    #[serde(default)]
    hull: Vec<Vec<usize>>,
}

#[derive(Deserialize)]
struct LabelDescription {
    name: String,
    #[serde(default)]
    unit: String,
    transform: Transform,
    mean: f64,
    std: f64,
    min: f64,
    max: f64,
}

fn default_clip() -> f64 {
    300.0
}

/// Reads a native file; the caller checks shapes and values and fills in the hash.
pub(super) fn open(path: &Path) -> Result<Emulator> {
    let mut file = Tensors::open(path)?;
    let description = file.description()?;
    let activation = Activation::of_name(&description.activation)
        .ok_or_else(|| Error::format(path, format!("unknown activation `{}`", description.activation)))?;
    let output = output(&description).map_err(|m| Error::format(path, m))?;
    let mut layers = Vec::new();
    while file.has(&format!("layer.{}.weight", layers.len())) {
        layers.push(file.layer(layers.len())?);
    }
    let mut hulls = Vec::new();
    for (k, axes) in description.hull.into_iter().enumerate() {
        hulls.push(file.hull(k, axes)?);
    }
    let wavelength = if file.has("wavelength") { file.vector("wavelength", |x| x)? } else { Vec::new() };
    if let Some(name) = file.tensors.keys().min() {
        return Err(Error::format(path, format!("tensor `{name}` belongs to no part of the network")));
    }
    Ok(Emulator {
        source: path.display().to_string(),
        hash: String::new(),
        labels: description.labels.into_iter().map(label).collect(),
        wavelength,
        activation,
        activation_is_assumed: false,
        output,
        network: Network::Dense(layers),
        hulls,
    })
}

fn label(label: LabelDescription) -> Label {
    let LabelDescription { name, unit, transform, mean, std, min, max } = label;
    Label { name, unit, transform, mean, std, min, max }
}

fn output(description: &Description) -> Result<Activation, String> {
    if description.version != 1 {
        return Err(format!("version {} of the emulator format; this popfit reads version 1", description.version));
    }
    if description.medium.as_deref().is_some_and(|medium| medium != "vacuum") {
        return Err("the wavelength is not in vacuum".to_string());
    }
    let clip = description.clip;
    match description.output.as_str() {
        "identity" => Ok(Activation::Identity),
        "exp" if clip.is_finite() && clip > 0.0 => Ok(Activation::Exp { clip }),
        "exp" => Err(format!("clip {clip}")),
        other => Err(format!("unknown output `{other}`")),
    }
}

/// The tensors of a file that have not been read yet.
struct Tensors {
    path: PathBuf,
    file: BufReader<File>,
    /// Where the tensors' bytes begin.
    start: u64,
    metadata: HashMap<String, String>,
    tensors: HashMap<String, TensorInfo>,
}

impl Tensors {
    fn open(path: &Path) -> Result<Tensors> {
        let file = files::open(path).map_err(Error::io(path))?;
        let size = file.metadata().map_err(Error::io(path))?.len();
        let mut file = BufReader::new(file);
        let at = |offset, message: String| Error::Format { path: path.to_path_buf(), offset: Some(offset), message };
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|_| at(0, "neither NPZ nor safetensors".to_string()))?;
        let length = u64::from_le_bytes(length);
        if length > size.saturating_sub(8) {
            return Err(at(0, format!("neither NPZ nor safetensors: a header of {length} bytes in a file of {size}")));
        }
        if length > MAX_HEADER {
            let message = format!("a header of {length} bytes, more than {MAX_HEADER}");
            return Err(Error::TooLarge { path: path.to_path_buf(), message });
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(Error::io(path))?;
        super::unique::check_keys(&header).map_err(|e| at(8, format!("header: {e}")))?;
        let header: Metadata = serde_json::from_slice(&header).map_err(|e| at(8, format!("header: {e}")))?;
        let start = 8 + length;
        if header.data_len() as u64 != size - start {
            return Err(at(
                start,
                format!("the tensors need {} bytes, the file has {}", header.data_len(), size - start),
            ));
        }
        let tensors = header.tensors().into_iter().map(|(name, info)| (name, info.clone())).collect();
        let metadata = header.metadata().clone().unwrap_or_default();
        Ok(Tensors { path: path.to_path_buf(), file, start, metadata, tensors })
    }

    fn fault(&self, message: impl Into<String>) -> Error {
        Error::format(&self.path, message)
    }

    fn description(&self) -> Result<Description> {
        let text = self.metadata.get("popfit").ok_or_else(|| self.fault("no metadata `popfit`"))?;
        serde_json::from_str(text).map_err(|e| self.fault(format!("metadata `popfit`: {e}")))
    }

    fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Takes a tensor of N dimensions, f32 or f64.
    fn take<const N: usize, T>(&mut self, name: &str, convert: impl Fn(f64) -> T) -> Result<([usize; N], Vec<T>)> {
        let info = self.tensors.remove(name).ok_or_else(|| self.fault(format!("no tensor `{name}`")))?;
        let shape: [usize; N] = info.shape.as_slice().try_into().map_err(|_| {
            self.fault(format!("ShapeMismatch: `{name}` has the shape {:?}, not {N} dimensions", info.shape))
        })?;
        let (begin, end) = info.data_offsets;
        let item = match info.dtype {
            Dtype::F32 => 4,
            Dtype::F64 => 8,
            other => return Err(self.fault(format!("`{name}` is {other}, neither F32 nor F64"))),
        };
        self.file.seek(SeekFrom::Start(self.start + begin as u64)).map_err(Error::io(&self.path))?;
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

    fn word<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut word = [0; N];
        self.file.read_exact(&mut word).map(|()| word)
    }

    fn vector<T>(&mut self, name: &str, convert: impl Fn(f64) -> T) -> Result<Vec<T>> {
        let ([_], values) = self.take(name, convert)?;
        Ok(values)
    }

    fn layer(&mut self, k: usize) -> Result<Layer> {
        let narrow = |x| x as f32;
        let ([outputs, inputs], weight) = self.take(&format!("layer.{k}.weight"), narrow)?;
        let bias = self.vector(&format!("layer.{k}.bias"), narrow)?;
        let affine = match (format!("layer.{k}.scale"), format!("layer.{k}.offset")) {
            (scale, offset) if self.has(&scale) || self.has(&offset) => {
                Some((self.vector(&scale, narrow)?, self.vector(&offset, narrow)?))
            }
            _ => None,
        };
        Ok(Layer { inputs, outputs, weight, bias, affine })
    }

    fn hull(&mut self, k: usize, axes: Vec<usize>) -> Result<Hull> {
        let ([_, columns], facets) = self.take(&format!("hull.{k}"), |x| x)?;
        if columns != axes.len() + 1 {
            return Err(self.fault(format!("ShapeMismatch: hull.{k} has {columns} columns for {} axes", axes.len())));
        }
        Ok(Hull { axes, facets })
    }
}
