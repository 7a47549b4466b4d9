//! `small`: fits from start to end in f32 on both devices, of a decay whose lanes are written by hand. Data, weights,
//! grids, units and bounds come in all combinations that a kernel is made for.

use std::sync::{Arc, Mutex};

use super::{SIZES, gpu};
use popfit::low_level::cpu::CpuDevice;
use popfit::low_level::solver::small::{
    LaneBlock, LaneGrid, Numbers, PART, Shape, SmallBatch, SmallColumns, SmallModel, SmallParts,
    SmallProblem, SumRounding, WAITING,
};
use popfit::low_level::solver::{Backend, Estimator, LevenbergMarquardt, Tolerances};
use popfit::{Formula, Status};

const POINTS: usize = 21;

/// a exp(-k x) + c and its derivatives by a, k, c, in one precision.
macro_rules! decay {
    ($real:ty) => {
        Arc::new(|block: LaneBlock<'_, $real>| {
            for (place, j) in block.points.clone().enumerate() {
                for l in 0..block.parameters[0].0.len() {
                    let [a, k, c] = [0, 1, 2].map(|p| block.parameters[p].0[l]);
                    let x = match block.grid {
                        LaneGrid::Shared(x) => x[j],
                        LaneGrid::Own(x) => x[j].0[l],
                    };
                    let e = (-k * x).exp();
                    let value = a * e + c;
                    let value = block.y.get(j).map_or(value, |y| y.0[l] - value);
                    for (row, value) in [value, e, -a * x * e, 1.0].into_iter().enumerate() {
                        block.rows[place * block.stride + row].0[l] = value;
                    }
                }
            }
        })
    };
}

/// Results of the fits of a part.
struct Fits {
    parameters: Vec<f64>,
    variances: Vec<f64>,
    chi2: Vec<f64>,
    status: Vec<i8>,
    correlations: Vec<f64>,
}

/// A part's data, and its columns.
struct Part<'a> {
    batch: SmallBatch<'a>,
    fits: Fits,
    predicted_reductions: Vec<f64>,
    rounds: Vec<u16>,
    /// Number of times that it has begun.
    begun: usize,
    /// Number of times that it has ended.
    ended: usize,
}

/// Parts, all but the last of [`PART`] fits.
struct Parts<'a>(Vec<Mutex<Part<'a>>>);

impl<'a> Parts<'a> {
    fn new(batches: &[SmallBatch<'a>]) -> Parts<'a> {
        let mut parts = Vec::new();
        for batch in batches {
            let count = batch.starts.len() / 3;
            parts.push(Mutex::new(Part {
                batch: *batch,
                fits: Fits {
                    parameters: batch.starts.to_vec(),
                    variances: vec![f64::NAN; 3 * count],
                    chi2: vec![f64::NAN; count],
                    status: vec![WAITING; count],
                    correlations: vec![f64::NAN; 9 * count],
                },
                predicted_reductions: vec![f64::NAN; count],
                rounds: vec![0; count],
                begun: 0,
                ended: 0,
            }));
        }
        Parts(parts)
    }
}

impl SmallParts for Parts<'_> {
    fn fits(&self) -> usize {
        self.0
            .iter()
            .map(|part| part.lock().unwrap().rounds.len())
            .sum()
    }

    fn begin(&self, part: usize) -> Option<Shape> {
        let mut part = self.0[part].lock().unwrap();
        part.begun += 1;
        Some(Shape::of(&part.batch))
    }

    fn lend(&self, part: usize, work: &mut dyn FnMut(&SmallBatch<'_>, &mut SmallColumns<'_>)) {
        let mut part = self.0[part].lock().unwrap();
        let Part {
            batch,
            fits,
            predicted_reductions,
            rounds,
            begun,
            ended,
        } = &mut *part;
        let Fits {
            parameters,
            variances,
            chi2,
            status,
            correlations,
        } = fits;
        let correlations = Some(&mut correlations[..]);
        assert!(*begun > 0 && *ended == 0);
        work(
            batch,
            &mut SmallColumns {
                parameters,
                variances,
                correlations,
                chi2,
                predicted_reductions,
                status,
                rounds,
            },
        );
    }

    fn finish_part(&self, part: usize) -> popfit::Result<()> {
        self.0[part].lock().unwrap().ended += 1;
        Ok(())
    }
}

/// Fits decays, at most so many at a time.
fn fit_parts(
    device: &dyn Backend,
    model: SmallModel,
    rounding: Option<SumRounding>,
    parts: &[SmallBatch<'_>],
    capacity: usize,
) -> Vec<Fits> {
    let small = SmallProblem {
        capacity,
        parameters: 3,
        predictors: 1,
        points: POINTS,
        model,
        wgsl: Formula::parse("a*exp(-k*x) + c")
            .unwrap()
            .wgsl(true)
            .to_owned(),
        ends_in_ones: false,
        settings: LevenbergMarquardt::default()
            .diagonal_floor(0.3)
            .largest_step(10.0),
        budget: 1000,
        is_pointwise: true,
        is_sandwich: false,
        tolerances: Tolerances::with_reduction(
            &LevenbergMarquardt::default(),
            1e-9,
            f64::INFINITY,
            1e-6,
        ),
        estimator: Estimator::LeastSquares,
        priors: Vec::new(),
        rounding,
        correlations: true,
    };
    let parts = Parts::new(parts);
    device
        .small_fitter(small)
        .unwrap()
        .unwrap()
        .fit(&parts)
        .unwrap();
    parts
        .0
        .into_iter()
        .map(|part| {
            let part = part.into_inner().unwrap();
            assert_eq!(part.ended, part.rounds.len().min(1));
            part.fits
        })
        .collect()
}

/// Fits decays in one part.
fn fit(
    device: &dyn Backend,
    model: SmallModel,
    rounding: Option<SumRounding>,
    batch: &SmallBatch<'_>,
) -> Fits {
    fit_parts(device, model, rounding, &[*batch], PART).remove(0)
}

/// Returns the k-th of some arbitrary numbers between −0.5 and 0.5.
fn arbitrary_number(k: usize) -> f64 {
    ((k * 7919 + 13) % 1009) as f64 / 1009.0 - 0.5
}

/// Decays with noise, and their starts.
struct Data {
    shape: Shape,
    x: Vec<f64>,
    y: Vec<f64>,
    sigma: Vec<f64>,
    mask: Vec<bool>,
    starts: Vec<f64>,
    units: Vec<f64>,
}

const LOWER: [f64; 3] = [0.0, 0.8, -10.0];
const UPPER: [f64; 3] = [3.0, 9.0, 10.0];

impl Data {
    fn new(count: usize, shape: Shape) -> Data {
        let own_grid = shape.own_grid;
        let x: Vec<f64> = (0..if own_grid { count * POINTS } else { POINTS })
            .map(|i| 0.2 * (i % POINTS) as f64 + 0.01 * (i / POINTS) as f64)
            .collect();
        let mut y = Vec::new();
        let mut sigma = Vec::new();
        let mut mask = Vec::new();
        for (k, j) in (0..count).flat_map(|k| (0..POINTS).map(move |j| (k, j))) {
            let x = x[if own_grid { k * POINTS + j } else { j }];
            let height = 3.0 + arbitrary_number(k);
            let rate = 1.0 + arbitrary_number(k + 7);
            let noise = 0.1 * arbitrary_number(31 * k + j);
            let is_masked = shape.is_weighted && (k + 2 * j).is_multiple_of(9);
            y.push(if is_masked {
                f64::NAN
            } else {
                height * (-rate * x).exp() + 1.0 + noise
            });
            sigma.push(0.05 + 0.01 * ((k + j) % 5) as f64);
            mask.push(is_masked);
        }
        Data {
            shape,
            y,
            sigma,
            mask,
            starts: (0..count)
                .flat_map(|k| [2.5, 1.2, 0.5 + 0.1 * arbitrary_number(k)])
                .collect(),
            units: (0..count)
                .flat_map(|k| [4.0, 0.5, if k % 2 == 0 { 1.0 } else { 2.0 }])
                .collect(),
            x,
        }
    }

    fn batch(&self) -> SmallBatch<'_> {
        let Shape {
            own_grid,
            is_weighted,
            is_bounded,
            own_units,
        } = self.shape;
        SmallBatch {
            x: &self.x,
            own_grid,
            y: Numbers::Double(&self.y),
            sigma: is_weighted.then_some(&self.sigma),
            mask: is_weighted.then_some(&self.mask),
            starts: &self.starts,
            units: own_units.then_some(&self.units),
            bounds: is_bounded.then_some((&LOWER, &UPPER)),
            first: 0,
            numbers: None,
        }
    }
}

fn is_success(fits: &Fits, k: usize) -> bool {
    Status::from_code(fits.status[k].into()).is_some_and(Status::is_success)
}

#[test]
fn small_fits_agree() {
    let Some(gpu) = gpu() else { return };
    let mut out_of_rounds_count = [0; 2];
    for (count, bits) in SIZES
        .into_iter()
        .flat_map(|count| (0..16).map(move |bits| (count, bits)))
    {
        let shape = Shape {
            own_grid: bits & 1 != 0,
            is_weighted: bits & 2 != 0,
            is_bounded: bits & 4 != 0,
            own_units: bits & 8 != 0,
        };
        let data = Data::new(count, shape);
        let batch = data.batch();
        let exact = fit(
            &CpuDevice,
            SmallModel::Double(decay!(f64), None),
            None,
            &batch,
        );
        let cpu = fit(
            &CpuDevice,
            SmallModel::Single(decay!(f32), None),
            None,
            &batch,
        );
        let on_gpu = fit(&gpu, SmallModel::Single(decay!(f32), None), None, &batch);
        for k in 0..count {
            // In f32 steps made of rounding may go on until the last round: f64 begins such fits again.
            let out_of_rounds =
                [&cpu, &on_gpu].map(|fits| fits.status[k] == Status::MaxRounds.code() as i8);
            for (count, is_out) in out_of_rounds_count.iter_mut().zip(out_of_rounds) {
                *count += usize::from(is_out);
            }
            if out_of_rounds.contains(&true) {
                continue;
            }
            let all_succeeded = [&cpu, &on_gpu, &exact]
                .iter()
                .all(|fits| is_success(fits, k));
            assert!(
                all_succeeded,
                "{shape:?} {k}: {} {}",
                cpu.status[k], on_gpu.status[k]
            );
            assert!(
                (cpu.chi2[k] / on_gpu.chi2[k] - 1.0).abs() < 1e-4,
                "{shape:?} {k}: chi2 {} {}",
                cpu.chi2[k],
                on_gpu.chi2[k]
            );
            for i in 3 * k..3 * k + 3 {
                // Without a bound of the rounding no fit ends in f32.
                assert!(on_gpu.variances[i].is_nan());
                // At a bound there is no error, and the parameter itself must agree.
                let sigma = (exact.variances[i] * exact.chi2[k] / POINTS as f64).sqrt();
                let tolerance = if sigma.is_nan() {
                    1e-6 * cpu.parameters[i].abs()
                } else {
                    0.02 * sigma
                };
                let [cpu, on_gpu, exact] = [&cpu, &on_gpu, &exact].map(|fits| fits.parameters[i]);
                assert!(
                    (cpu - on_gpu).abs() <= tolerance,
                    "{shape:?} {k}: {cpu} {on_gpu} {sigma}"
                );
                assert!(
                    (cpu - exact).abs() <= tolerance,
                    "{shape:?} {k}: {cpu} {exact} {sigma}"
                );
            }
        }
    }
    let fit_count = 16 * SIZES.iter().sum::<usize>();
    assert!(
        out_of_rounds_count
            .iter()
            .all(|count| 50 * count <= fit_count),
        "{out_of_rounds_count:?} of {fit_count}"
    );
}

/// A GPU ends some fits in f32, whose parameters, variances and correlations are those of f64.
#[test]
fn fits_end_in_f32_where_sums_bound_their_rounding() {
    let Some(gpu) = gpu() else { return };
    for (is_bounded, others, least_ended) in [(false, 3.0, 40), (true, 3.0, 10), (false, 3000.0, 0)]
    {
        let data = Data::new(
            130,
            Shape {
                own_grid: false,
                is_weighted: false,
                is_bounded,
                own_units: false,
            },
        );
        let batch = data.batch();
        let rounding = Some(SumRounding {
            of_exponent: 2.0,
            others,
            exponents: &[(1, 1.0)],
        });
        let exact = fit(
            &CpuDevice,
            SmallModel::Double(decay!(f64), None),
            None,
            &batch,
        );
        let on_gpu = fit(
            &gpu,
            SmallModel::Single(decay!(f32), None),
            rounding,
            &batch,
        );
        let ended: Vec<usize> = (0..130)
            .filter(|k| on_gpu.variances[3 * k].is_finite())
            .collect();
        assert!(
            ended.len() >= least_ended && (least_ended > 0 || ended.is_empty()),
            "{is_bounded} {others}: {}",
            ended.len()
        );
        for k in ended {
            assert!(is_success(&on_gpu, k), "{k}");
            for i in 3 * k..3 * k + 3 {
                assert!(
                    (on_gpu.variances[i] / exact.variances[i] - 1.0).abs() < 1e-3,
                    "{k}: {} {}",
                    on_gpu.variances[i],
                    exact.variances[i]
                );
                let sigma = (exact.variances[i] * exact.chi2[k] / POINTS as f64).sqrt();
                assert!(
                    (on_gpu.parameters[i] - exact.parameters[i]).abs() < 1e-3 * sigma,
                    "{k}: {} {}",
                    on_gpu.parameters[i],
                    exact.parameters[i]
                );
            }
            for i in [3, 6, 7].map(|below| 9 * k + below) {
                let [on_gpu, exact] = [&on_gpu, &exact].map(|fits| fits.correlations[i]);
                assert!((on_gpu - exact).abs() < 1e-3, "{k}: {on_gpu} {exact}");
            }
        }
    }
}

/// Parts with other inputs than the parts before them do not change the results of these, which are on the device by
/// then.
#[test]
fn results_do_not_depend_on_how_many_parts_a_gpu_holds() {
    let Some(gpu) = gpu() else { return };
    let plain = Shape {
        own_grid: false,
        is_weighted: false,
        is_bounded: false,
        own_units: false,
    };
    let shapes = [
        plain,
        plain,
        Shape {
            own_units: true,
            ..plain
        },
        Shape {
            is_weighted: true,
            ..plain
        },
    ];
    let data: Vec<Data> = shapes
        .into_iter()
        .zip([PART, PART, PART, 77])
        .map(|(shape, count)| Data::new(count, shape))
        .collect();
    let batches: Vec<SmallBatch<'_>> = data.iter().map(Data::batch).collect();
    let model = || SmallModel::Single(decay!(f32), None);
    let one_at_a_time = fit_parts(&gpu, model(), None, &batches, PART);
    let two_at_a_time = fit_parts(&gpu, model(), None, &batches, 2 * PART);
    for ((fits, together), batch) in one_at_a_time.iter().zip(&two_at_a_time).zip(&batches) {
        let alone = fit(&gpu, model(), None, batch);
        for other in [together, &alone] {
            assert_eq!(fits.status, other.status);
            assert!(
                fits.parameters
                    .iter()
                    .zip(&other.parameters)
                    .all(|(a, b)| a.to_bits() == b.to_bits())
            );
            assert!(
                fits.chi2
                    .iter()
                    .zip(&other.chi2)
                    .all(|(a, b)| a.to_bits() == b.to_bits())
            );
        }
        assert!(
            (0..fits.status.len())
                .filter(|&k| is_success(fits, k))
                .count()
                > fits.status.len() * 49 / 50
        );
    }
}
