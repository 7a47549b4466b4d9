//! Gpufit's GAUSS_2D: images of 5 × 5 pixels with noise, amplitude over noise 20, starts and truths within a tenth of
//! each other's middle.

use popfit::Formula;

use popfit_testing::sequence::Sequence;

pub const POINTS: usize = 25;
pub const PARAMETERS: usize = 5;

/// The model, its two coordinates one after another, (count, points) values and (count, parameters) starts.
pub fn images(count: usize) -> (Formula, Vec<f64>, Vec<f64>, Vec<f64>) {
    let formula = Formula::builtin("gauss2d").expect("a model");
    let x: Vec<f64> = (0..2 * POINTS)
        .map(|j| if j < POINTS { j % 5 } else { (j - POINTS) / 5 } as f64)
        .collect();
    let mut random = Sequence(7);
    let near = |random: &mut Sequence| {
        [10.0, 2.0, 2.0, 1.0, 10.0].map(|c| c * (0.9 + 0.2 * random.uniform()))
    };
    let (mut y, mut starts) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let truth = near(&mut random);
        let model = formula.values(&x, &truth).expect("values");
        y.extend(model.iter().map(|m| m + 0.5 * random.normal()));
        starts.extend(near(&mut random));
    }
    (formula, x, y, starts)
}
