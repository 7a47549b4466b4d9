//! Random problems whose starts are far from their truths.

use popfit::{CurveFit, CurveFitter, Curves, Device, Formula, Result};

/// Kinds of bad starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Far {
    /// Amplitudes by a factor of 10³ to 10⁸, upwards or downwards; the others by up to a quarter.
    Magnitudes,
    /// Amplitudes by a factor of 10 to 100, upwards or downwards; the others by up to a quarter.
    Amplitudes,
    /// Everything by a factor of up to √10, upwards or downwards; amplitudes as before.
    Factors,
    /// Factors as before, and half of all parameters but amplitudes have the wrong sign.
    Signs,
}

/// A model of x, the middle of its true parameters, the ends of its x and which parameters are amplitudes.
type Family = (&'static str, &'static [f64], (f64, f64), &'static [usize]);

const POSITIVE: [Family; 9] = [
    (
        "a*exp(-(x-m)^2/(2*s^2)) + c",
        &[10.0, 5.0, 1.0, 1.0],
        (0.0, 10.0),
        &[0],
    ),
    (
        "a*g^2/((x-m)^2+g^2) + c",
        &[10.0, 1.0, 5.0, 1.0],
        (0.0, 10.0),
        &[0],
    ),
    ("a*exp(-k*x) + c", &[10.0, 0.7, 1.0], (0.0, 8.0), &[0]),
    (
        "a*exp(-k*x) + b*exp(-l*x)",
        &[10.0, 2.0, 5.0, 0.3],
        (0.0, 8.0),
        &[0, 2],
    ),
    ("a/(1+exp(-k*(x-m)))", &[10.0, 1.5, 5.0], (0.0, 10.0), &[0]),
    (
        "a*exp(-(x-m)^2/(2*s^2)) + b*exp(-(x-n)^2/(2*t^2)) + c",
        &[10.0, 3.0, 0.8, 6.0, 7.0, 1.0, 1.0],
        (0.0, 10.0),
        &[0, 3],
    ),
    ("a*x^k", &[2.0, 1.7], (0.5, 10.0), &[0]),
    (
        "a*sin(w*x + p) + c",
        &[5.0, 2.0, 0.5, 1.0],
        (0.0, 6.0),
        &[0],
    ),
    ("a*x/(b + x)", &[10.0, 2.0], (0.2, 12.0), &[0]),
];

const SIGNED: [Family; 7] = [
    (
        "a*exp(-(x-m)^2/(2*s^2)) + c",
        &[10.0, 1.5, 1.0, 1.0],
        (-5.0, 5.0),
        &[0],
    ),
    (
        "a*g^2/((x-m)^2+g^2) + c",
        &[10.0, 1.0, -2.0, 1.0],
        (-5.0, 5.0),
        &[0],
    ),
    ("a*exp(k*x) + c", &[3.0, 0.4, 5.0], (-3.0, 3.0), &[0]),
    ("a + b*x + c*x^2", &[3.0, 0.4, 5.0], (-3.0, 3.0), &[0]),
    ("a/(1+exp(-k*(x-m)))", &[10.0, 1.5, -1.0], (-5.0, 5.0), &[0]),
    (
        "a*sin(w*x + p) + c",
        &[5.0, 2.0, 0.8, 1.0],
        (-2.0, 2.0),
        &[0],
    ),
    ("a*tanh(k*x + b)", &[5.0, 2.0, 0.8], (-2.0, 2.0), &[0]),
];

/// Points of a curve.
pub const POINTS: usize = 60;
/// Fits that end this share above the best known χ² are elsewhere.
const ALIKE: f64 = 1e-3;

/// Curves of one family whose amplitudes start too low, right or too high.
pub struct Problems {
    pub text: &'static str,
    pub amplitudes: &'static str,
    /// (points), (curves, points), (curves, parameters)
    pub x: Vec<f64>,
    pub y: Vec<f64>,
    pub starts: Vec<f64>,
    truths: Vec<f64>,
}

/// `count` curves of each family and kind of amplitude.
pub fn problems(far: Far, count: usize) -> Result<Vec<Problems>> {
    let mut random = Random(88_172_645_463_325_252);
    let families = if far == Far::Signs {
        &SIGNED[..]
    } else {
        &POSITIVE
    };
    let each = families
        .iter()
        .flat_map(|family| [("right", 0.0), ("low", -1.0), ("high", 1.0)].map(|a| (family, a)));
    each.map(|(family, amplitudes)| problem(far, family, amplitudes, count, &mut random))
        .collect()
}

fn problem(
    far: Far,
    &(text, middle, (begin, end), amplitudes): &Family,
    (name, power): (&'static str, f64),
    count: usize,
    random: &mut Random,
) -> Result<Problems> {
    let formula = Formula::parse(text)?;
    let x: Vec<f64> = (0..POINTS)
        .map(|j| begin + (end - begin) * j as f64 / (POINTS - 1) as f64)
        .collect();
    let (mut y, mut starts, mut truths) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let truth: Vec<f64> = middle
            .iter()
            .map(|m| m * (0.8 + 0.4 * random.uniform()))
            .collect();
        let model = formula.values(&x, &truth)?;
        let top = model.iter().fold(0.0, |top: f64, m| top.max(m.abs()));
        y.extend(model.iter().map(|m| m + 0.02 * top * random.normal()));
        let (least, range) = if far == Far::Magnitudes {
            (3.0, 5.0)
        } else {
            (1.0, 1.0)
        };
        let factor = 10f64.powf(power * (least + range * random.uniform()));
        for (p, truth) in truth.iter().enumerate() {
            let near = match far {
                Far::Amplitudes | Far::Magnitudes => truth * (0.75 + 0.5 * random.uniform()),
                Far::Factors | Far::Signs => truth * 10f64.powf(random.uniform() - 0.5),
            };
            let sign = if far == Far::Signs && random.uniform() < 0.5 {
                -1.0
            } else {
                1.0
            };
            starts.push(
                near * if amplitudes.contains(&p) {
                    factor
                } else {
                    sign
                },
            );
        }
        truths.extend(truth);
    }
    Ok(Problems {
        text,
        amplitudes: name,
        x,
        y,
        starts,
        truths,
    })
}

impl Problems {
    /// The fits from the starts, and the lowest known χ² of each: that from its truth, or its own.
    pub fn fit(&self) -> Result<(Vec<CurveFit>, Vec<f64>)> {
        let fitter = CurveFitter::new(Formula::parse(self.text)?, Device::cpu());
        let from = |starts: &[f64]| {
            fitter.fit(&Curves::on_common_grid(
                self.x.clone(),
                self.y.clone(),
                starts.to_vec(),
            ))
        };
        let (fits, best) = (from(&self.starts)?, from(&self.truths)?);
        let lowest = fits
            .iter()
            .zip(&best)
            .map(|(fit, best)| fit.chi2.min(best.chi2))
            .collect();
        Ok((fits, lowest))
    }
}

/// Returns the number of fits that are the best known.
pub fn arrived(fits: &[CurveFit], lowest: &[f64]) -> usize {
    fits.iter()
        .zip(lowest)
        .filter(|(fit, lowest)| fit.chi2 <= **lowest * (1.0 + ALIKE))
        .count()
}

/// Marsaglia's xorshift (2003, J. Stat. Softw. 8, 14).
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Nearly so: a sum of twelve.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}
