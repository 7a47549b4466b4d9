//! Random networks of the demo's shape, with as many labels and pixels as one likes.

use std::collections::HashMap;

use popfit::{Emulator, Error, Result};
use safetensors::tensor::{Dtype, TensorView, serialize};

use popfit_testing::sequence::Sequence;

/// The demo's hidden layers.
const HIDDEN: [usize; 4] = [256, 256, 256, 200];
/// Å, and the step of its logarithm: the demo's pixels reach as far.
const START: f64 = 3600.0;
const STEP: f64 = 1.3e-4;
/// Lines are about this many pixels wide.
const WIDTH: f64 = 4.0;

/// exp of a SiLU network; labels are scaled as they are, trained in ±1.
pub fn network(labels: usize, pixels: usize) -> Result<Emulator> {
    let file = std::env::temp_dir().join(format!("popfit-bench-{}-{labels}-{pixels}.safetensors", std::process::id()));
    let failed = |source| Error::Io { path: file.clone(), source };
    std::fs::write(&file, bytes(labels, pixels)?).map_err(failed)?;
    let emulator = Emulator::open(&file);
    let _ = std::fs::remove_file(&file);
    emulator
}

type Tensor = (String, Dtype, Vec<usize>, Vec<u8>);

fn bytes(labels: usize, pixels: usize) -> Result<Vec<u8>> {
    let mut random = Sequence(5);
    let wavelength: Vec<u8> = (0..pixels).flat_map(|j| (START * (STEP * j as f64).exp()).to_le_bytes()).collect();
    let mut tensors = vec![("wavelength".to_string(), Dtype::F64, vec![pixels], wavelength)];
    let sizes = [&[labels], &HIDDEN[..], &[pixels]].concat();
    for (k, pair) in sizes.windows(2).enumerate() {
        let (inputs, outputs) = (pair[0], pair[1]);
        let is_last = k == HIDDEN.len();
        let size = (1.5 / inputs as f64).sqrt();
        let mut weight: Vec<f64> = (0..inputs * outputs).map(|_| size * random.normal()).collect();
        if is_last {
            weight = smooth(&weight, inputs);
        }
        let bias: Vec<f64> = (0..outputs).map(|_| if is_last { 0.0 } else { 0.3 * random.normal() }).collect();
        tensors.push(tensor(format!("layer.{k}.weight"), vec![outputs, inputs], &weight));
        tensors.push(tensor(format!("layer.{k}.bias"), vec![outputs], &bias));
    }
    let views = tensors.iter().map(|(name, kind, shape, bytes): &Tensor| {
        Ok((name.as_str(), TensorView::new(*kind, shape.clone(), bytes).map_err(message)?))
    });
    let views: Vec<_> = views.collect::<Result<_>>()?;
    serialize(views, Some(HashMap::from([("popfit".to_string(), description(labels))]))).map_err(message)
}

fn description(labels: usize) -> String {
    let label =
        |k| format!(r#"{{"name":"label{k}","transform":"identity","mean":0.0,"std":1.0,"min":-1.0,"max":1.0}}"#);
    let labels: Vec<String> = (0..labels).map(label).collect();
    format!(
        r#"{{"version":1,"activation":"silu","output":"exp","clip":300.0,"labels":[{}],"medium":"vacuum","grid":"log"}}"#,
        labels.join(",")
    )
}

fn tensor(name: String, shape: Vec<usize>, values: &[f64]) -> Tensor {
    (name, Dtype::F32, shape, values.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect())
}

/// Rows (pixels, inputs) averaged with their neighbours, so that the output has lines, and made half as large.
fn smooth(rows: &[f64], inputs: usize) -> Vec<f64> {
    const REACH: i32 = 15;
    let taps: Vec<f64> = (-REACH..=REACH).map(|k| (-0.5 * (f64::from(k) / WIDTH).powi(2)).exp()).collect();
    let total: f64 = taps.iter().sum();
    let pixels = (rows.len() / inputs) as i32;
    let mut out = vec![0.0; rows.len()];
    for (at, row) in out.chunks_exact_mut(inputs).enumerate() {
        for (k, tap) in taps.iter().enumerate() {
            let near = (at as i32 + k as i32 - REACH).clamp(0, pixels - 1) as usize;
            let own = &rows[near * inputs..(near + 1) * inputs];
            row.iter_mut().zip(own).for_each(|(sum, x)| *sum += 0.5 * tap / total * x);
        }
    }
    out
}

fn message(error: impl std::fmt::Display) -> Error {
    Error::Usage(format!("a random network: {error}"))
}
