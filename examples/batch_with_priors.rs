//! A batch with a prior, bounds and several starts: `cargo run --release --example batch_with_priors`

use popfit::{Continuum, Device, Emulator, LabelSettings, Spectra, SpectralFitter, SpectralModel};

fn main() -> popfit::Result<()> {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
    // alpha is poorly known from these spectra: say what is known of it
    let alpha = LabelSettings::default().prior(0.2, 0.15);
    let teff = LabelSettings::default().bounds(4200.0..=8800.0);
    let model = SpectralModel::builder()
        .arm("b", Emulator::open(format!("{data}/emulator.safetensors"))?)
        .velocity(-500.0..=500.0)
        .continuum(Continuum::rbf(10))
        .marginalise(true)
        .label("alpha", alpha)
        .label("teff", teff)
        .build()?;
    let fitter = SpectralFitter::new(model, Device::auto()?).starts(8);
    let table = fitter.fit(&Spectra::open(format!("{data}/spectra.npz"))?)?;
    println!("id   status      velocity        teff   starts that agree   flags");
    let [velocity, teff] =
        ["velocity", "teff"].map(|name| table.floats(name).expect("a parameter of this model"));
    for ((row, velocity), teff) in table.to_rows().iter().zip(velocity).zip(teff) {
        println!(
            "{:<4} {:<8} {velocity:9.2} {teff:11.1} {:>12} of 8 {:>12}",
            row.id, row.status_text, row.n_starts_agree, row.flags
        );
    }
    Ok(())
}
