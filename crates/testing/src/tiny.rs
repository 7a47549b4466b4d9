//! Networks small enough to know the answer of every fit.

use popfit::{Continuum, Emulator, LabelSettings, Spectra, SpectralModel, SpectralModelBuilder};
use safetensors::tensor::{Dtype, TensorView, serialize};

use super::{le32, le64};

pub const PIXELS: usize = 64;

/// 64 pixels, uniform in ln λ.
pub fn wavelength() -> Vec<f64> {
    (0..PIXELS)
        .map(|j| 5000.0 * (j as f64 * 1e-4).exp())
        .collect()
}

/// A dense layer.
pub struct Layer {
    pub outputs: usize,
    /// (outputs, inputs)
    pub weight: Vec<f32>,
    /// (outputs)
    pub bias: Vec<f32>,
}

/// A network without hull; labels are scaled as they are, trained in ±10.
pub fn network(labels: &[&str], activation: &str, layers: &[Layer]) -> Emulator {
    let folder = tempfile::tempdir().unwrap();
    Emulator::open(super::file(
        folder.path(),
        "tiny.safetensors",
        &network_file(labels, activation, layers),
    ))
    .unwrap()
}

/// Returns the bytes of the file of such a network.
pub fn network_file(labels: &[&str], activation: &str, layers: &[Layer]) -> Vec<u8> {
    // 1. Describe the network in the metadata.
    let describe_label = |name: &&str| {
        format!(
            r#"{{"name":"{name}","transform":"identity","mean":0.0,"std":1.0,"min":-10.0,"max":10.0}}"#
        )
    };
    let label_descriptions: Vec<String> = labels.iter().map(describe_label).collect();
    let description = format!(
        r#"{{"version":1,"activation":"{activation}","output":"identity","labels":[{}],"medium":"vacuum","grid":"log"}}"#,
        label_descriptions.join(",")
    );
    // 2. Collect its tensors.
    let mut tensors = vec![(
        "wavelength".to_string(),
        Dtype::F64,
        vec![PIXELS],
        le64(&wavelength()),
    )];
    for (
        k,
        Layer {
            outputs,
            weight,
            bias,
        },
    ) in layers.iter().enumerate()
    {
        tensors.push((
            format!("layer.{k}.weight"),
            Dtype::F32,
            vec![*outputs, weight.len() / outputs],
            le32(weight),
        ));
        tensors.push((
            format!("layer.{k}.bias"),
            Dtype::F32,
            vec![*outputs],
            le32(bias),
        ));
    }
    let views = tensors.iter().map(|(name, kind, shape, bytes)| {
        (name, TensorView::new(*kind, shape.clone(), bytes).unwrap())
    });
    serialize(
        views,
        Some([("popfit".to_string(), description)].into_iter().collect()),
    )
    .unwrap()
}

/// Flux 1 + Σ_l c_lj z_l, c_lj a wave of its own for each label, through one layer.
pub fn linear(labels: &[&str], coefficient: impl Fn(usize, usize) -> f32) -> Emulator {
    network(labels, "relu", &[linear_layer(labels.len(), coefficient)])
}

pub fn linear_layer(labels: usize, coefficient: impl Fn(usize, usize) -> f32) -> Layer {
    let weight = (0..PIXELS)
        .flat_map(|j| (0..labels).map(|l| coefficient(l, j)).collect::<Vec<f32>>())
        .collect();
    Layer {
        outputs: PIXELS,
        weight,
        bias: vec![1.0; PIXELS],
    }
}

/// Coefficient of a label at a pixel: waves that are not orthogonal, so that the labels are correlated.
pub fn wave(label: usize, pixel: usize) -> f32 {
    (0.3 * (label + 1) as f32 * pixel as f32).sin() * 0.1 + 0.02
}

/// At rest, without a continuum; every label starts at `start`.
pub fn model(emulator: Emulator, start: f64) -> SpectralModel {
    builder(emulator, start).build().unwrap()
}

pub fn builder(emulator: Emulator, start: f64) -> SpectralModelBuilder {
    let names: Vec<String> = emulator.labels().iter().map(|l| l.name.clone()).collect();
    let settings = LabelSettings::default().start(start);
    let builder = SpectralModel::builder()
        .arm("", emulator)
        .continuum(Continuum::none());
    names.into_iter().fold(builder, |builder, name| {
        builder.label(name, settings.clone())
    })
}

/// `count` spectra with the emulator's templates at `labels`, S/N 100, and noise that is a pure function of pixel and
/// row.
pub fn spectra(emulator: &Emulator, labels: &[f64], noise: f64) -> Spectra<'static> {
    let flux: Vec<f64> = emulator
        .templates(labels)
        .iter()
        .map(|f| f64::from(*f))
        .collect();
    let noisy =
        |(k, f): (usize, f64)| f + noise * (k as f64 * 12.9898).sin() * (k as f64 * 78.233).cos();
    let flux: Vec<f64> = flux.into_iter().enumerate().map(noisy).collect();
    let ivar = vec![1e4; flux.len()];
    Spectra::from_arrays(wavelength(), flux, ivar, None, None).unwrap()
}
