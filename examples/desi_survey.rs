//! A survey's file in, a survey's table out:
//! `cargo run --release --example desi_survey -- MODEL.toml coadd.fits.gz rvtab_X.fits`.

use popfit::RvTabWriter;
use popfit::spectra::{Selection, open_reader_with};
use popfit::{Device, Metadata, ModelFile, SpectralFitter};

fn main() -> popfit::Result<()> {
    let [model, coadd, out] = std::env::args()
        .skip(1)
        .collect::<Vec<_>>()
        .try_into()
        .unwrap_or_else(|_| {
            eprintln!("usage: desi_survey MODEL.toml COADD OUT.fits");
            std::process::exit(2);
        });
    let targets = Selection {
        objtype: Some("TGT".into()),
        min_signal_to_noise: Some(2.0),
        ..Selection::default()
    };
    let mut spectra = open_reader_with(coadd, &targets)?;
    let fitter = SpectralFitter::new(ModelFile::open(model)?.build()?, Device::auto()?);
    let mut table = RvTabWriter::create(out, &fitter, &[spectra.empty()], &Metadata::default())?;
    let summary = fitter.fit_stream(spectra.as_mut(), &mut table)?;
    table.finish()?;
    println!("{} spectra", summary.fits);
    Ok(())
}
