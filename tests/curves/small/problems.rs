//! Problems whose fits are compared, and the devices that fit them.

use popfit::Formula;
pub use popfit_testing::sequence::Sequence;

/// Data of many curves: truths and starts within a tenth of `centre`.
pub struct Problem {
    pub formula: Formula,
    pub x: Vec<f64>,
    pub y: Vec<f64>,
    pub starts: Vec<f64>,
}

pub fn problem(formula: Formula, x: Vec<f64>, centre: &[f64], sigma: f64, count: usize) -> Problem {
    let mut random = Sequence(count as u64 + 1);
    let near = |random: &mut Sequence| -> Vec<f64> {
        centre
            .iter()
            .map(|c| c * (1.0 + 0.2 * (random.uniform() - 0.5)))
            .collect()
    };
    let mut y = Vec::new();
    let mut starts = Vec::new();
    for _ in 0..count {
        let truth = near(&mut random);
        y.extend(
            formula
                .values(&x, &truth)
                .unwrap()
                .iter()
                .map(|m| m + sigma * random.normal()),
        );
        starts.extend(near(&mut random));
    }
    Problem {
        formula,
        x,
        y,
        starts,
    }
}

/// 5 × 5 images of round Gaussians.
pub fn images(sigma: f64, count: usize) -> Problem {
    let formula = Formula::builtin("gauss2d").unwrap();
    assert_eq!(formula.parameters(), ["a", "x0", "y0", "s", "c"]);
    let x = (0..50)
        .map(|j| if j < 25 { j % 5 } else { (j - 25) / 5 })
        .map(f64::from)
        .collect();
    problem(formula, x, &[10.0, 2.0, 2.0, 1.0, 10.0], sigma, count)
}
