//! Arrays of rows in a safetensors file, for a peer's script to read.

use std::path::Path;

use popfit::{Error, Result};
use safetensors::tensor::{Dtype, TensorView, serialize};

/// Arrays (name, length of a row, values).
pub fn write(path: &Path, arrays: &[(&str, usize, &[f64])]) -> Result<()> {
    let failed = |message: String| Error::Write {
        path: path.into(),
        message,
    };
    let bytes: Vec<Vec<u8>> = arrays
        .iter()
        .map(|(_, _, values)| values.iter().flat_map(|x| x.to_le_bytes()).collect())
        .collect();
    let mut views = Vec::new();
    for ((name, width, values), bytes) in arrays.iter().zip(&bytes) {
        let shape = vec![values.len() / width, *width];
        views.push((
            *name,
            TensorView::new(Dtype::F64, shape, bytes).map_err(|e| failed(e.to_string()))?,
        ));
    }
    let text = serialize(views, None).map_err(|e| failed(e.to_string()))?;
    std::fs::write(path, text).map_err(|source| Error::Io {
        path: path.into(),
        source,
    })
}
