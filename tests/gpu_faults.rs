//! A GPU that is lost, short of memory, slow or wrong at the k-th call, for every k: the reference's rows, or a clear error.
#![cfg(feature = "gpu")]

mod common;

use std::sync::Arc;

use common::fits::{bits, fitter, same_bits};
use common::tiny::{self, linear, spectra, wave};
use popfit::gpu::{Fault, Faults, GpuDevice};
use popfit::{Device, Error, FitTable, Fitter, Spectra};

const SPECTRA: usize = 12;

fn gpu() -> Option<GpuDevice> {
    match GpuDevice::best() {
        Ok(device) => Some(device),
        Err(error) if std::env::var("POPFIT_REQUIRE_GPU").as_deref() == Ok("1") => panic!("{error}"),
        Err(_) => {
            println!("skipped: no adapter");
            None
        }
    }
}

fn setup(device: impl Into<Device>) -> (Fitter, Spectra) {
    let emulator = linear(&["a", "b"], wave);
    let labels: Vec<f64> = (0..2 * SPECTRA).map(|k| 5.0 * (k as f64 * 0.7).sin()).collect();
    let all = spectra(&emulator, &labels, 0.01);
    (fitter(tiny::model(emulator, 0.5), &device.into()), all)
}

fn same(table: &FitTable, reference: &FitTable) -> bool {
    table.rows.iter().zip(&reference.rows).all(|(a, b)| bits(a) == bits(b))
}

#[test]
fn explore() {
    let Some(gpu) = gpu() else { return };
    for fault in Fault::ALL {
        for lasting in [false, true] {
            let (mut k, begin) = (1, std::time::Instant::now());
            let mut told = std::collections::BTreeMap::new();
            loop {
                let faults = Faults::new(fault, k, lasting);
                let (fitter, all) = setup(gpu.clone().with_faults(Arc::clone(&faults)).unwrap());
                let what = match fitter.fit(&all) {
                    Ok(_) => "ok".to_string(),
                    Err(error) => error.to_string(),
                };
                *told.entry(what).or_insert(0) += 1;
                if faults.calls() < k {
                    break;
                }
                k += 1;
            }
            println!("{fault:?} {lasting}: {k} calls, {:?}: {told:#?}", begin.elapsed());
        }
    }
}
