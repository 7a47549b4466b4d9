//! `popfit-bench curves`: the time of many small fits by one call.

use std::time::Instant;

use popfit::{Control, CurveFitter, Curves, Device};
use popfit_cli::{Failure, line};

use super::gauss::{self, Gauss};
use super::host::all_threads;

/// Calls, of which the quickest counts.
const CALLS: usize = 5;

#[derive(clap::Args)]
pub struct Arguments {
    /// Device, as popfit's --device
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Numbers of curves of a call
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1000000"
    )]
    curves: Vec<usize>,
    /// Number of threads, by default as many as the processor has
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// Fits Gauss functions on 5 × 5 pixels, so many as the arguments say.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let device: Device = arguments.device.parse()?;
    let threads = arguments.threads.unwrap_or_else(all_threads);
    arguments
        .curves
        .iter()
        .try_for_each(|count| time(device.clone(), *count, threads))
}

/// Fits Gauss functions on 5 × 5 pixels, from arrays in f64 and in f32; prints the time of one.
pub fn time(device: Device, count: usize, threads: usize) -> Result<(), Failure> {
    let name = device.to_string();
    let gauss = Gauss::new(count)?;
    let control = Control {
        threads: Some(threads),
        ..Control::default()
    };
    let fitter = CurveFitter::new(gauss::formula()?, device).control(control.clone());
    let [y, starts] = [&gauss.y, &gauss.starts]
        .map(|numbers| numbers.iter().map(|x| *x as f32).collect::<Vec<f32>>());
    let double = Curves::on_common_grid(gauss::grid(), &gauss.y, &gauss.starts);
    let single = Curves::on_common_grid(gauss::grid(), &y, &starts);
    for (what, curves) in [("f64", double), ("f32", single)] {
        let mut quickest = f64::INFINITY;
        for _ in 0..CALLS {
            let begin = Instant::now();
            fitter.fit_columns(&curves)?;
            quickest = quickest.min(begin.elapsed().as_secs_f64());
        }
        let each = |seconds: f64| 1e9 * seconds / count as f64;
        let of_all = each(quickest);
        line(format_args!(
            "Gauss 2D, {name}, {threads} threads: {count} fits from {what}, {of_all:.0} ns each"
        ));
        let times = control.scope(|| time_on_device(&fitter, curves))??;
        if let Some([upload, fit, read]) = times.map(|times| times.map(each)) {
            line(format_args!(
                "    of data on the device: {fit:.1} ns; to send them {upload:.0}, to read {read:.0}"
            ));
        }
    }
    Ok(())
}

/// Returns times in seconds: of an upload until the device can begin, and the quickest of fits of what lies there and
/// of reading their results; `None` if the device has no memory of its own.
fn time_on_device(fitter: &CurveFitter, curves: Curves<'_>) -> Result<Option<[f64; 3]>, Failure> {
    let mut begin = Instant::now();
    let mut lap = || {
        std::mem::replace(&mut begin, Instant::now())
            .elapsed()
            .as_secs_f64()
    };
    let mut uploaded = fitter.upload(curves)?;
    if !uploaded.is_on_device() {
        return Ok(None);
    }
    // the device may still copy: its first fits wait for that
    uploaded.fit()?;
    let with_first = lap();
    let mut quickest = [f64::INFINITY; 2];
    for _ in 0..CALLS {
        let mut fitted = uploaded.fit()?;
        let fit = lap();
        fitted.read()?;
        let times = [fit, lap()];
        quickest
            .iter_mut()
            .zip(times)
            .for_each(|(quickest, time)| *quickest = quickest.min(time));
    }
    let [fit, read] = quickest;
    Ok(Some([with_first - fit, fit, read]))
}
