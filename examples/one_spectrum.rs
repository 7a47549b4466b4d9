//! One spectrum with an emulator: `cargo run --release --example one_spectrum`

use popfit::{Continuum, Device, Emulator, Spectra, SpectralFitter, SpectralModel};

fn main() -> popfit::Result<()> {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
    let emulator = Emulator::open(format!("{data}/emulator.safetensors"))?;
    let model = SpectralModel::builder()
        .arm("b", emulator)
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10))
        .build()?;
    let fitter = SpectralFitter::new(model, Device::auto()?);
    // a spectrum of one's own comes from Spectra::from_arrays(wavelength, flux, ivar, mask, ids)
    let spectrum = Spectra::open(format!("{data}/spectra.npz"))?.slice(0..1);
    let table = fitter.fit(&spectrum)?;
    let row = table.row(0);
    println!(
        "{} after {} rounds, chi2 {:.1} for {} degrees of freedom",
        row.status_text, row.rounds, row.chi2, row.dof
    );
    for ((name, value), error) in table.names().iter().zip(&row.parameters).zip(&row.errors) {
        println!("{name:>8} {value:10.3} ± {error:.3}");
    }
    Ok(())
}
