//! Many spectra out of few, for timings: `cargo run --release --example tiled -- FILE COPIES OUT.npz` writes the
//! spectra of a file over and over. Masked pixels get no weight; resolution matrices and the file's own columns are
//! left out.

use std::fs::File;
use std::io::{BufWriter, Write};

use npyz::WriterBuilder;
use popfit::spectra::{ArmSpectra, Wavelength};
use popfit::{Error, Result, Spectra};
use zip::write::SimpleFileOptions;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, copies, out] = arguments.as_slice() else {
        return Err(Error::Usage("tiled FILE COPIES OUT.npz".into()));
    };
    let copies: u64 = copies.parse().map_err(|_| Error::Usage(format!("{copies} is no number of copies")))?;
    let spectra = Spectra::open(file)?;
    write(&spectra, copies, out).map_err(|source| Error::Io { path: out.into(), source })
}

fn write(spectra: &Spectra, copies: u64, out: &str) -> std::io::Result<()> {
    let mut zip = zip::ZipWriter::new(BufWriter::new(File::create(out)?));
    let count = spectra.len() as u64 * copies;
    for arm in &spectra.arms {
        let name = |what: &str| if arm.name.is_empty() { what.into() } else { format!("{}_{what}", arm.name) };
        let (rows, pixels) = (spectra.len() as u64 * copies, arm.pixels as u64);
        match &arm.wavelength {
            Wavelength::Shared(grid) => array(&mut zip, &name("wavelength"), &[pixels], (grid, 1))?,
            Wavelength::Own(grids) => {
                array(&mut zip, &name("wavelength"), &[rows, pixels], (&grids.to_double(), copies))?
            }
        }
        let narrow = |all: &[f64]| all.iter().map(|x| *x as f32).collect::<Vec<f32>>();
        array(&mut zip, &name("flux"), &[rows, pixels], (&narrow(&arm.flux.to_double()), copies))?;
        array(&mut zip, &name("ivar"), &[rows, pixels], (&narrow(&weights(arm)), copies))?;
    }
    array(&mut zip, "id", &[count], (&(0..count as i64).collect::<Vec<_>>(), 1))?;
    zip.finish()?.flush()
}

fn weights(arm: &ArmSpectra) -> Vec<f64> {
    let is_masked = |k: usize| arm.mask.get(k).copied().unwrap_or(false);
    arm.ivar.to_double().iter().enumerate().map(|(k, ivar)| if is_masked(k) { 0.0 } else { *ivar }).collect()
}

/// One array, its values `copies` times, not compressed.
fn array<T: npyz::AutoSerialize + Copy>(
    zip: &mut zip::ZipWriter<BufWriter<File>>,
    name: &str,
    shape: &[u64],
    (values, copies): (&[T], u64),
) -> std::io::Result<()> {
    zip.start_file(
        format!("{name}.npy"),
        SimpleFileOptions::default().large_file(true).compression_method(zip::CompressionMethod::Stored),
    )?;
    let mut writer = npyz::WriteOptions::new().default_dtype().shape(shape).writer(&mut *zip).begin_nd()?;
    for _ in 0..copies {
        writer.extend(values.iter().copied())?;
    }
    writer.finish()
}
