//! `popfit-bench tiled`: many spectra out of few, for timings.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use npyz::WriterBuilder;
use popfit::spectra::{ArmSpectra, Wavelength};
use popfit::{Error, Spectra};
use popfit_cli::Failure;
use popfit_testing::sequence::Sequence;
use zip::write::SimpleFileOptions;

#[derive(clap::Args)]
pub struct Arguments {
    /// File of spectra
    file: PathBuf,
    /// Number of times that all of them are written
    copies: usize,
    /// NPZ file to which they are written
    out: PathBuf,
    /// Add noise as large as a spectrum's own, so that all differ, and halve ivar
    #[arg(long)]
    noise: bool,
}

/// Writes the spectra of a file over and over. Masked pixels get no weight; resolution matrices and the file's own
/// columns are left out.
pub fn run(
    Arguments {
        file,
        copies,
        out,
        noise,
    }: &Arguments,
) -> Result<(), Failure> {
    let spectra = Spectra::open(file)?;
    write(&spectra, *copies, out, *noise).map_err(|source| Error::Io {
        path: out.clone(),
        source,
    })?;
    Ok(())
}

/// Writes the arrays of an NPZ file.
fn write(spectra: &Spectra, copies: usize, out: &Path, noise: bool) -> std::io::Result<()> {
    let mut zip = zip::ZipWriter::new(BufWriter::new(File::create(out)?));
    let mut random = Sequence(17);
    let count = spectra.len() * copies;
    for arm in &spectra.arms {
        let name = |what: &str| {
            if arm.name.is_empty() {
                what.into()
            } else {
                format!("{}_{what}", arm.name)
            }
        };
        let shape = [count, arm.pixels];
        match &arm.wavelength {
            Wavelength::Shared(grid) => {
                array(&mut zip, &name("wavelength"), &shape[1..], |k| grid[k])?
            }
            Wavelength::Own(grids) => {
                let grids = grids.to_double();
                array(&mut zip, &name("wavelength"), &shape, |k| {
                    grids[k % grids.len()]
                })?;
            }
        }
        let (flux, ivar) = (arm.flux.to_double(), weights(arm));
        let mut noisy = |k: usize| {
            let more = if noise && ivar[k] > 0.0 {
                random.normal() / ivar[k].sqrt()
            } else {
                0.0
            };
            (flux[k] + more) as f32
        };
        array(&mut zip, &name("flux"), &shape, |k| noisy(k % flux.len()))?;
        let share = if noise { 0.5 } else { 1.0 };
        array(&mut zip, &name("ivar"), &shape, |k| {
            (share * ivar[k % ivar.len()]) as f32
        })?;
    }
    array(&mut zip, "id", &[count], |k| k as i64)?;
    zip.finish()?.flush()
}

/// Returns the inverse variances of an arm, 0 where a pixel is masked.
fn weights(arm: &ArmSpectra) -> Vec<f64> {
    let is_masked = |k: usize| arm.mask.get(k).copied().unwrap_or(false);
    arm.ivar
        .to_double()
        .iter()
        .enumerate()
        .map(|(k, ivar)| if is_masked(k) { 0.0 } else { *ivar })
        .collect()
}

/// Writes an array, whose number at each place `value` returns, not compressed.
fn array<T: npyz::AutoSerialize>(
    zip: &mut zip::ZipWriter<BufWriter<File>>,
    name: &str,
    shape: &[usize],
    value: impl FnMut(usize) -> T,
) -> std::io::Result<()> {
    zip.start_file(
        format!("{name}.npy"),
        SimpleFileOptions::default()
            .large_file(true)
            .compression_method(zip::CompressionMethod::Stored),
    )?;
    let lengths: Vec<u64> = shape.iter().map(|length| *length as u64).collect();
    let mut writer = npyz::WriteOptions::new()
        .default_dtype()
        .shape(&lengths)
        .writer(&mut *zip)
        .begin_nd()?;
    writer.extend((0..shape.iter().product()).map(value))?;
    writer.finish()
}
