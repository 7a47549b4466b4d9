//! The 128 synb spectra against the f64 reference minima (design §2, shared `rvspecfit.npz`).

mod common;

use common::{array, median, shared, synb_model};
use popfit::{Device, FitTable, Fitter, LevenbergMarquardt, Spectra};

/// Objectives above the reference, of every spectrum, the constant of masked pixels added.
fn gaps(table: &FitTable, spectra: &Spectra, folder: &std::path::Path) -> Vec<f64> {
    let (_, reference) = array(&folder.join("rvspecfit.npz"), "ref_m2logl");
    let arm = &spectra.arms[0];
    let gap = |(n, row): (usize, &popfit::FitRow)| {
        let range = n * arm.pixels..(n + 1) * arm.pixels;
        let masked = arm.ivar[range.clone()].iter().zip(&arm.mask[range]).filter(|(_, mask)| **mask);
        let constant: f64 = masked.map(|(w, _)| -w.ln()).sum();
        row.objective + constant - reference[n]
    };
    table.rows.iter().enumerate().map(gap).collect()
}

#[test]
fn the_128_spectra_reach_the_reference() {
    let Some(shared) = shared() else { return };
    let folder = shared.join("data/synb/fixed_vsini");
    let spectra = Spectra::open(folder.join("spectra.npz")).unwrap();
    let fitter = Fitter::new(synb_model(&shared), Device::cpu(), LevenbergMarquardt::default()).unwrap();
    let start = std::time::Instant::now();
    let table = fitter.fit(&spectra).unwrap();
    println!("{:?}", start.elapsed());
    let start = std::time::Instant::now();
    let _ = fitter.fit(&spectra).unwrap();
    println!("{:?}", start.elapsed());
    let (_, x) = array(&folder.join("rvspecfit.npz"), "ref_x");
    let (_, errors) = array(&folder.join("rvspecfit.npz"), "ref_err");
    let gaps = gaps(&table, &spectra, &folder);
    let count = gaps.len() as f64;
    let share = |n: usize| n as f64 / count;
    let mut offsets = Vec::new();
    let mut ratios = Vec::new();
    for (n, row) in table.rows.iter().enumerate() {
        assert!(row.status.is_success(), "{row:?}");
        let sigma = (0..5).map(|p| ((row.parameters[p] - x[5 * n + p]) / errors[5 * n + p]).abs()).fold(0.0, f64::max);
        if gaps[n] > 0.02 || sigma > 0.1 { println!("{n} gap {} sigma {sigma} {:?} {:?}", gaps[n], row, &x[5*n..5*n+5]); }
        offsets.push(sigma);
        ratios.extend((0..5).map(|p| row.errors[p] / errors[5 * n + p]));
    }
    println!("largest gap {:.4}, lowest {:.4}", gaps.iter().copied().fold(f64::MIN, f64::max), gaps.iter().copied().fold(f64::MAX, f64::min));
    println!("evaluations median {}", median(table.rows.iter().map(|r| f64::from(r.evaluations)).collect()));
    println!("sigma median {:.5}", median(offsets.clone()));
    assert!(share(gaps.iter().filter(|g| **g <= 0.02).count()) >= 0.99);
    assert!(gaps.iter().all(|g| *g <= 0.1));
    assert!(share(offsets.iter().filter(|s| **s <= 0.1).count()) >= 0.99);
    let close = ratios.iter().filter(|r| (**r - 1.0).abs() <= 0.05).count();
    assert!(close as f64 / ratios.len() as f64 >= 0.95, "{}", close as f64 / ratios.len() as f64);
    assert!((median(ratios) - 1.0).abs() <= 0.01);
}
