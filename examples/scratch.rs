use popfit::*;
fn main() {
    let shared = std::path::PathBuf::from("/work/shared/data");
    let model = SpectralModel::builder().arm("", Emulator::open(shared.join("synb/emulator.safetensors")).unwrap()).velocity(-1000.0..=1000.0).continuum(Continuum::rbf(10)).marginalise(true).build().unwrap();
    let fitter = Fitter::new(model, Device::parse(&std::env::args().nth(1).unwrap_or("cpu".into())).unwrap(), LevenbergMarquardt::default()).unwrap();
    for _ in 0..3 {
    let mut reader = spectra::open_reader(shared.join("synb/fixed_vsini/spectra.npz")).unwrap();
    let mut table = FitTable::default();
    let t = std::time::Instant::now();
    let summary = fitter.fit_with(reader.as_mut(), &mut table, &Control::default()).unwrap();
    println!("{:?} {:?}", t.elapsed(), summary.stages); }

}
