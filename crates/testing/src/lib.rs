//! Helpers that tests, benchmarks and examples share: devices, small networks and spectra, random numbers, the NIST
//! problems.

pub mod calibration;
pub mod curves;
pub mod cut;
pub mod far_starts;
pub mod files;
pub mod fits;
pub mod fits_bytes;
pub mod memory;
pub mod minima;
pub mod minpack;
pub mod nist;
pub mod noisy;
pub mod profile;
pub mod random;
pub mod refits;
pub mod regressions;
pub mod required;
pub mod sequence;
pub mod soak;
pub mod synb;
pub mod tiny;

use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Output;

use popfit::{Continuum, Emulator, SpectralModel, SpectralModelBuilder};
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder of reference data, `tests/data`.
pub fn data_folder() -> PathBuf {
    root().join("tests/data")
}

/// A file of the demo, in `data/`.
pub fn demo_file(name: &str) -> PathBuf {
    root().join("data").join(name)
}

/// The demo's emulator, from which the spectra of `tests/data/synb` were drawn.
pub fn demo_emulator() -> PathBuf {
    demo_file("emulator.safetensors")
}

/// The folder `POPFIT_REAL_DATA`, which has real spectra that are not part of this repository. Where it is not set, a
/// test says so and passes: substitutes of the same formats are tested anyway.
pub fn real_data() -> Option<PathBuf> {
    let folder = std::env::var_os("POPFIT_REAL_DATA").map(PathBuf::from);
    match &folder {
        Some(folder) => assert!(
            folder.is_dir(),
            "POPFIT_REAL_DATA: no folder {}",
            folder.display()
        ),
        None => required::report_skip(
            "POPFIT_REAL_DATA is not set, so the real APOGEE and SDSS spectra are not tested",
        ),
    }
    folder
}

/// A `.npy` array of `bytes`.
pub fn npy(descr: &str, shape: &[usize], bytes: &[u8]) -> Vec<u8> {
    let dimensions: String = shape.iter().map(|n| format!("{n}, ")).collect();
    raw_npy(
        &format!(
            "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}",
            dimensions.trim_end()
        ),
        bytes,
    )
}

/// Returns a `.npy` array with this header, right or wrong.
pub fn raw_npy(header: &str, bytes: &[u8]) -> Vec<u8> {
    let text = format!("{header}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
    out.extend(bytes);
    out
}

/// The bytes of the numbers, the lowest first.
pub fn le64(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

pub fn le32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

pub fn f64s(shape: &[usize], values: &[f64]) -> Vec<u8> {
    npy("<f8", shape, &le64(values))
}

pub fn f32s(shape: &[usize], values: &[f32]) -> Vec<u8> {
    npy("<f4", shape, &le32(values))
}

pub fn i64s(values: &[i64]) -> Vec<u8> {
    npy(
        "<i8",
        &[values.len()],
        &values
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect::<Vec<u8>>(),
    )
}

pub fn bools(shape: &[usize], values: &[bool]) -> Vec<u8> {
    npy(
        "|b1",
        shape,
        &values.iter().map(|&x| u8::from(x)).collect::<Vec<u8>>(),
    )
}

/// The bytes of an NPZ file.
pub fn npz(arrays: &[(&str, Vec<u8>)], deflate: bool) -> Vec<u8> {
    let method = if deflate {
        CompressionMethod::Deflated
    } else {
        CompressionMethod::Stored
    };
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in arrays {
        zip.start_file(
            format!("{name}.npy"),
            SimpleFileOptions::default().compression_method(method),
        )
        .unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// Writes a file into a folder.
pub fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Shape and values of an array of an NPZ, read with another reader than popfit's.
pub fn array(path: &Path, key: &str) -> (Vec<usize>, Vec<f64>) {
    let mut archive = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut bytes = Vec::new();
    archive
        .by_name(&format!("{key}.npy"))
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    let file = npyz::NpyFile::new(&bytes[..]).unwrap();
    let shape = file.shape().iter().map(|n| *n as usize).collect();
    let values = match file.dtype() {
        npyz::DType::Plain(element) => match element.to_string().as_str() {
            "<f4" => npyz::NpyFile::new(&bytes[..])
                .unwrap()
                .into_vec::<f32>()
                .unwrap()
                .iter()
                .map(|x| f64::from(*x))
                .collect(),
            "<i8" => npyz::NpyFile::new(&bytes[..])
                .unwrap()
                .into_vec::<i64>()
                .unwrap()
                .iter()
                .map(|x| *x as f64)
                .collect(),
            "|b1" => npyz::NpyFile::new(&bytes[..])
                .unwrap()
                .into_vec::<bool>()
                .unwrap()
                .iter()
                .map(|x| f64::from(u8::from(*x)))
                .collect(),
            _ => file.into_vec::<f64>().unwrap(),
        },
        dtype => panic!("{dtype:?}"),
    };
    (shape, values)
}

/// The demo's model, for an arm of this name: velocity ±1000, rbf 10, marginalised.
pub fn demo_builder(arm: &str) -> SpectralModelBuilder {
    SpectralModel::builder()
        .arm(arm, Emulator::open(demo_emulator()).unwrap())
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10))
        .marginalise(true)
}

/// rvspecfit's model of the synb spectra, which is the demo's.
pub fn synb_model() -> SpectralModel {
    demo_builder("").build().unwrap()
}

/// The same with rotation, up to 500 km/s.
pub fn rotating_model() -> SpectralModel {
    demo_builder("").vsini(0.0..=500.0).build().unwrap()
}

/// What a program wrote to its standard error.
pub fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Median of finite values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The largest of the values and 0, or NaN if one of them is NaN.
pub fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(
        0.0,
        |worst, x| if x > worst || x.is_nan() { x } else { worst },
    )
}
