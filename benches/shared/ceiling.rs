//! The rate of a well-kept library's large product on all cores: the practical limit of the network's products.

use std::sync::Barrier;
use std::time::Instant;

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, Par};

const SIZES: [usize; 3] = [1280, 208, 3872];
const REPEATS: usize = 8;

/// GF/s of faer's f32 product, a product a thread, all at once: the best of some.
pub fn faer_ceiling() -> f64 {
    let [m, k, n] = SIZES;
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let barrier = Barrier::new(threads);
    let one = |_| {
        let a = Mat::from_fn(m, k, |i, j| (i + 2 * j) as f32 / (m * k) as f32);
        let b = Mat::from_fn(k, n, |i, j| (3 * i + j) as f32 / (k * n) as f32);
        let mut out = Mat::<f32>::zeros(m, n);
        let mut times = [0.0; REPEATS];
        for time in &mut times {
            barrier.wait();
            let begin = Instant::now();
            matmul(
                out.as_mut(),
                Accum::Replace,
                a.as_ref(),
                b.as_ref(),
                1.0,
                Par::Seq,
            );
            *time = begin.elapsed().as_secs_f64();
        }
        times
    };
    let times: Vec<[f64; REPEATS]> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        all.into_iter()
            .map(|thread| thread.join().expect("a thread"))
            .collect()
    });
    // a round lasts as long as its slowest
    let round = |r: usize| times.iter().map(|times| times[r]).fold(0.0, f64::max);
    let least = (0..REPEATS).map(round).fold(f64::INFINITY, f64::min);
    2.0 * (threads * m * k * n) as f64 / least / 1e9
}
