//! The seams carry more than spectra: an exponential decay, a model of three lines, through the same solver and
//! devices.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use popfit::low_level::cpu::CpuDevice;
#[cfg(feature = "gpu")]
use popfit::low_level::gpu::GpuDevice;
use popfit::low_level::recording::{
    BufferId, Custom, Kind, Normal, Parameter, Precision, Prior, Recording, Scope, Stage, Values,
    pointwise,
};
use popfit::low_level::solver::{
    Backend, Batch, LevenbergMarquardt, Objective, Outcome, Status, optimise,
};
#[cfg(feature = "gpu")]
use popfit_testing::required::{Need, found};

/// y = a e^(−k x) + c
struct Decay {
    pixels: usize,
    precision: Precision,
}

const DATA: BufferId = BufferId(0);
const WEIGHT: BufferId = BufferId(1);
const PREDICTOR: BufferId = BufferId(2);

impl Objective for Decay {
    fn record(&self) -> Recording {
        let parameter = |name: &str| Parameter {
            name: name.into(),
            origin: 0.0,
            scale: 1.0,
        };
        let mut recording = Recording {
            parameters: ["a", "k", "c"].map(parameter).to_vec(),
            precision: self.precision,
            ..Recording::default()
        };
        let pixels = self.pixels;
        let data = recording.buffer("data", Scope::Spectrum, Kind::Float, pixels);
        let weight = recording.buffer("weight", Scope::Spectrum, Kind::Float, pixels);
        let predictor = recording.buffer("x", Scope::Batch, Kind::Float, pixels);
        assert_eq!((data, weight, predictor), (DATA, WEIGHT, PREDICTOR));
        let model = recording.buffer("model", Scope::Member, Kind::Float, 4 * pixels);
        recording.stages = vec![
            Stage::Prior(Prior::WITHOUT_HULLS),
            Stage::Custom(Custom {
                name: "decay".into(),
                output: model,
                rows: 4,
                pixels,
                predictors: 1,
                predictor,
                scale: None,
                table: Arc::default(),
                wgsl: "fn fill(x: f32, u: ptr<function, array<f32, 3>>, out: ptr<function, array<f32, 4>>) {
                    let e = expf(-(*u)[1] * x);
                    (*out)[0] = (*u)[0] * e + (*u)[2];
                    (*out)[1] = e;
                    (*out)[2] = -(*u)[0] * x * e;
                    (*out)[3] = 1.0;
                }"
                .into(),
                many: None,
                rust: pointwise(|x, u, out| {
                    let e = (-u[1] * x).exp();
                    out.copy_from_slice(&[u[0] * e + u[2], e, -u[0] * x * e, 1.0]);
                }),
            }),
            Stage::Normal(Normal { model, pixels, columns: vec![0, 1, 2], data, weight, continuum: None, loss: None }),
        ];
        recording
    }
}

/// Noiseless decays of different rates, every one from the same start.
fn batch(pixels: usize, spectra: usize) -> (Batch, Vec<[f64; 3]>) {
    let x: Vec<f64> = (0..pixels)
        .map(|j| 5.0 * j as f64 / pixels as f64)
        .collect();
    let truths: Vec<[f64; 3]> = (0..spectra)
        .map(|s| {
            [
                2.0 + 0.1 * s as f64,
                0.5 + 0.02 * s as f64,
                0.3 - 0.01 * s as f64,
            ]
        })
        .collect();
    let data: Vec<f64> = truths
        .iter()
        .flat_map(|t| {
            x.iter()
                .map(|x| 100.0 * (t[0] * (-t[1] * x).exp() + t[2]))
                .collect::<Vec<_>>()
        })
        .collect();
    let batch = Batch {
        spectra,
        blocks: vec![
            (DATA, Values::F64(data.into())),
            (WEIGHT, Values::F64(vec![100.0; pixels * spectra].into())),
            (PREDICTOR, Values::F64(x.into())),
        ],
        lower: vec![-100.0; 3 * spectra],
        upper: vec![100.0; 3 * spectra],
        prior_mean: vec![0.0; 3 * spectra],
        prior_weight: vec![0.0; 3 * spectra],
        group: (0..spectra as u32).collect(),
        starts: [1.0, 1.0, 0.0].repeat(spectra),
        ..Batch::default()
    };
    (batch, truths)
}

fn fit(device: &dyn Backend, precision: Precision) -> (Vec<Outcome>, Vec<[f64; 3]>) {
    let (batch, truths) = batch(64, 65);
    let recording = Arc::new(
        Decay {
            pixels: 64,
            precision,
        }
        .record(),
    );
    let mut population = device
        .population(recording, &LevenbergMarquardt::default(), 65)
        .unwrap();
    let outcomes = pollster::block_on(optimise(
        population.as_mut(),
        &batch,
        &AtomicBool::new(false),
        &mut |_| (),
    ))
    .unwrap();
    (outcomes, truths)
}

fn check(outcomes: &[Outcome], truths: &[[f64; 3]], tolerance: f64) {
    assert_eq!(outcomes.len(), truths.len());
    for (outcome, truth) in outcomes.iter().zip(truths) {
        assert!(
            outcome.status.is_some_and(Status::is_success),
            "{outcome:?}"
        );
        for (actual, true_value) in outcome.parameters.iter().zip(truth) {
            assert!(
                (actual - true_value).abs() < tolerance,
                "{outcome:?}\n{truth:?}"
            );
        }
    }
}

#[test]
fn decays_find_the_true_parameters_on_the_cpu_in_both_precisions() {
    let (outcomes, truths) = fit(&CpuDevice, Precision::F64);
    check(&outcomes, &truths, 1e-8);
    let (outcomes, truths) = fit(&CpuDevice, Precision::F32);
    check(&outcomes, &truths, 1e-4);
}

#[test]
#[cfg(feature = "gpu")]
fn decays_find_the_true_parameters_on_the_gpu() {
    let Some(gpu) = found(Need::Gpu, GpuDevice::best()) else {
        return;
    };
    let (outcomes, truths) = fit(&gpu, Precision::F32);
    check(&outcomes, &truths, 1e-3);
}
