//! The least-squares problems of MINPACK's test of `lmdif` (Moré, Garbow & Hillstrom 1981, ACM TOMS 7, 17 and 136),
//! with their standard starts and these times 10 and 100.

use popfit::{Closure, CurveFit, CurveFitter, Curves, Device, Result};

/// Residuals of a parameter vector.
type ResidualFunction = fn(&[f64], &mut [f64]);

/// A problem of some parameters and residuals.
pub struct MinpackProblem {
    pub name: &'static str,
    pub rows: usize,
    pub start: Vec<f64>,
    /// Number of the factors 1, 10 and 100 by which the start is multiplied.
    pub tries: usize,
    pub residuals: ResidualFunction,
    /// √Σr² at its minima, those at infinity included.
    pub norms: &'static [f64],
}

const fn problem(
    name: &'static str,
    rows: usize,
    start: Vec<f64>,
    tries: usize,
    residuals: ResidualFunction,
    norms: &'static [f64],
) -> MinpackProblem {
    MinpackProblem {
        name,
        rows,
        start,
        tries,
        residuals,
        norms,
    }
}

/// All problems of up to 32 parameters: 52 fits of the collection's 53.
pub fn problems() -> Vec<MinpackProblem> {
    let brown = |n: usize, tries: usize| {
        problem(
            "Brown, almost linear",
            n,
            vec![0.5; n],
            tries,
            almost_linear,
            &[0.0, 1.0],
        )
    };
    let chebyquad = |rows: usize, n: usize, tries: usize, norms: &'static [f64]| {
        let start = (1..=n).map(|j| j as f64 / (n + 1) as f64).collect();
        problem("Chebyquad", rows, start, tries, chebyquad, norms)
    };
    let watson =
        |n: usize, norms: &'static [f64]| problem("Watson", 31, vec![0.0; n], 3, watson, norms);
    vec![
        problem(
            "linear, full rank",
            10,
            vec![1.0; 5],
            1,
            full_rank,
            &[2.236_067_977_5],
        ),
        problem(
            "linear, full rank",
            50,
            vec![1.0; 5],
            1,
            full_rank,
            &[6.708_203_932_5],
        ),
        problem(
            "linear, rank 1",
            10,
            vec![1.0; 5],
            1,
            rank_1,
            &[1.463_850_109_4],
        ),
        problem(
            "linear, rank 1",
            50,
            vec![1.0; 5],
            1,
            rank_1,
            &[3.482_630_165_4],
        ),
        problem(
            "linear, rank 1, zero columns",
            10,
            vec![1.0; 5],
            1,
            rank_1_zeros,
            &[1.909_727_421_2],
        ),
        problem(
            "linear, rank 1, zero columns",
            50,
            vec![1.0; 5],
            1,
            rank_1_zeros,
            &[3.691_729_402_0],
        ),
        problem("Rosenbrock", 2, vec![-1.2, 1.0], 3, rosenbrock, &[0.0]),
        problem(
            "helical valley",
            3,
            vec![-1.0, 0.0, 0.0],
            3,
            helical,
            &[0.0],
        ),
        problem(
            "Powell singular",
            4,
            vec![3.0, -1.0, 0.0, 1.0],
            3,
            powell,
            &[0.0],
        ),
        problem(
            "Freudenstein & Roth",
            2,
            vec![0.5, -2.0],
            3,
            freudenstein,
            &[0.0, 6.998_875_174_4],
        ),
        problem(
            "Bard",
            15,
            vec![1.0; 3],
            3,
            bard,
            &[0.090_635_960_340, 4.174_768_701_4],
        ),
        problem(
            "Kowalik & Osborne",
            11,
            vec![0.25, 0.39, 0.415, 0.39],
            3,
            kowalik,
            &[0.017_535_837_72, 0.032_052_192_9],
        ),
        problem(
            "Meyer",
            16,
            vec![0.02, 4000.0, 250.0],
            2,
            meyer,
            &[9.377_945_146_6],
        ),
        watson(6, &[0.047_829_593_908]),
        watson(9, &[0.001_183_114_592_8]),
        watson(12, &[0.000_021_731_040_2]),
        problem("Box", 10, vec![0.0, 10.0, 20.0], 1, box_3, &[0.0]),
        problem(
            "Jennrich & Sampson",
            10,
            vec![0.3, 0.4],
            1,
            jennrich,
            &[11.151_779_342_5],
        ),
        problem(
            "Brown & Dennis",
            20,
            vec![25.0, 5.0, -5.0, -1.0],
            3,
            brown_dennis,
            &[292.954_287_6],
        ),
        chebyquad(8, 1, 3, &[1.886_238_270_8, 1.884_248_205_0]),
        chebyquad(8, 8, 1, &[0.059_303_235_467]),
        chebyquad(9, 9, 1, &[0.0]),
        chebyquad(10, 10, 1, &[0.080_647_100_388, 0.069_084_829_712]),
        brown(10, 3),
        brown(30, 1),
        problem(
            "Osborne 1",
            33,
            vec![0.5, 1.5, -1.0, 0.01, 0.02],
            1,
            osborne_1,
            &[0.007_392_492_605_9],
        ),
        problem(
            "Osborne 2",
            65,
            vec![1.3, 0.65, 0.65, 0.7, 0.6, 3.0, 5.0, 7.0, 2.0, 4.5, 5.5],
            1,
            osborne_2,
            &[0.200_344_004_2],
        ),
    ]
}

impl MinpackProblem {
    /// Fits the problem from its start times `factor`, on the CPU. A start of 0 has `factor` where that is not 1, as in
    /// MINPACK.
    ///
    /// # Errors
    ///
    /// Those of the fitter.
    pub fn fit(&self, factor: f64, polish: bool) -> Result<CurveFit> {
        let names: Vec<String> = (1..=self.start.len()).map(|p| format!("x{p}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let starts_at_zero = self.start.iter().all(|x| *x == 0.0);
        let start: Vec<f64> = self
            .start
            .iter()
            .map(|x| {
                if starts_at_zero && factor != 1.0 {
                    factor
                } else {
                    factor * x
                }
            })
            .collect();
        let fitter = CurveFitter::new(Closure::residuals(&names, self.residuals)?, Device::cpu())
            .polish(polish);
        Ok(fitter
            .fit(&Curves::residuals(self.rows, names.len(), start))?
            .swap_remove(0))
    }

    /// Returns whether Σr² is that of a minimum: to 1e-6 of it, or 1e-8 where it is 0.
    pub fn is_minimum(&self, chi2: f64) -> bool {
        self.norms
            .iter()
            .any(|norm| (chi2 - norm * norm).abs() <= f64::max(1e-6 * norm * norm, 1e-8))
    }
}

fn full_rank(x: &[f64], r: &mut [f64]) {
    let m = r.len() as f64;
    let temp = 2.0 * x.iter().sum::<f64>() / m + 1.0;
    for (i, r) in r.iter_mut().enumerate() {
        *r = -temp + x.get(i).copied().unwrap_or(0.0);
    }
}

fn rank_1(x: &[f64], r: &mut [f64]) {
    let sum: f64 = x.iter().enumerate().map(|(j, x)| (j + 1) as f64 * x).sum();
    r.iter_mut()
        .enumerate()
        .for_each(|(i, r)| *r = (i + 1) as f64 * sum - 1.0);
}

fn rank_1_zeros(x: &[f64], r: &mut [f64]) {
    let n = x.len();
    let m = r.len();
    let sum: f64 = (1..n - 1).map(|j| (j + 1) as f64 * x[j]).sum();
    for (i, r) in r.iter_mut().enumerate() {
        *r = if i == 0 || i == m - 1 {
            -1.0
        } else {
            i as f64 * sum - 1.0
        };
    }
}

fn rosenbrock(x: &[f64], r: &mut [f64]) {
    r[0] = 10.0 * (x[1] - x[0] * x[0]);
    r[1] = 1.0 - x[0];
}

fn helical(x: &[f64], r: &mut [f64]) {
    let turn = std::f64::consts::TAU;
    let angle = match x[0] {
        above if above > 0.0 => (x[1] / x[0]).atan() / turn,
        below if below < 0.0 => (x[1] / x[0]).atan() / turn + 0.5,
        _ => 0.25_f64.copysign(x[1]),
    };
    r[0] = 10.0 * (x[2] - 10.0 * angle);
    r[1] = 10.0 * ((x[0] * x[0] + x[1] * x[1]).sqrt() - 1.0);
    r[2] = x[2];
}

fn powell(x: &[f64], r: &mut [f64]) {
    r[0] = x[0] + 10.0 * x[1];
    r[1] = 5f64.sqrt() * (x[2] - x[3]);
    r[2] = (x[1] - 2.0 * x[2]).powi(2);
    r[3] = 10f64.sqrt() * (x[0] - x[3]).powi(2);
}

fn freudenstein(x: &[f64], r: &mut [f64]) {
    r[0] = -13.0 + x[0] + ((5.0 - x[1]) * x[1] - 2.0) * x[1];
    r[1] = -29.0 + x[0] + ((1.0 + x[1]) * x[1] - 14.0) * x[1];
}

fn bard(x: &[f64], r: &mut [f64]) {
    const Y: [f64; 15] = [
        0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.1, 4.39,
    ];
    for (i, r) in r.iter_mut().enumerate() {
        let u = (i + 1) as f64;
        let v = (15 - i) as f64;
        *r = Y[i] - (x[0] + u / (x[1] * v + x[2] * u.min(v)));
    }
}

fn kowalik(x: &[f64], r: &mut [f64]) {
    const V: [f64; 11] = [
        4.0, 2.0, 1.0, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625,
    ];
    const Y: [f64; 11] = [
        0.1957, 0.1947, 0.1735, 0.16, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246,
    ];
    for (i, r) in r.iter_mut().enumerate() {
        *r = Y[i] - x[0] * V[i] * (V[i] + x[1]) / (V[i] * (V[i] + x[2]) + x[3]);
    }
}

fn meyer(x: &[f64], r: &mut [f64]) {
    const Y: [f64; 16] = [
        34780.0, 28610.0, 23650.0, 19630.0, 16370.0, 13720.0, 11540.0, 9744.0, 8261.0, 7030.0,
        6005.0, 5147.0, 4427.0, 3820.0, 3307.0, 2872.0,
    ];
    for (i, r) in r.iter_mut().enumerate() {
        *r = x[0] * (x[1] / (5.0 * (i + 1) as f64 + 45.0 + x[2])).exp() - Y[i];
    }
}

fn watson(x: &[f64], r: &mut [f64]) {
    for (i, r) in r.iter_mut().enumerate().take(29) {
        let t = (i + 1) as f64 / 29.0;
        let slope: f64 = x
            .iter()
            .enumerate()
            .skip(1)
            .map(|(j, x)| j as f64 * x * t.powi(j as i32 - 1))
            .sum();
        let value: f64 = x
            .iter()
            .enumerate()
            .map(|(j, x)| x * t.powi(j as i32))
            .sum();
        *r = slope - value * value - 1.0;
    }
    r[29] = x[0];
    r[30] = x[1] - x[0] * x[0] - 1.0;
}

fn box_3(x: &[f64], r: &mut [f64]) {
    for (i, r) in r.iter_mut().enumerate() {
        let t = (i + 1) as f64 / 10.0;
        *r = (-t * x[0]).exp() - (-t * x[1]).exp() + ((-10.0 * t).exp() - (-t).exp()) * x[2];
    }
}

fn jennrich(x: &[f64], r: &mut [f64]) {
    for (i, r) in r.iter_mut().enumerate() {
        let t = (i + 1) as f64;
        *r = 2.0 + 2.0 * t - (t * x[0]).exp() - (t * x[1]).exp();
    }
}

fn brown_dennis(x: &[f64], r: &mut [f64]) {
    for (i, r) in r.iter_mut().enumerate() {
        let t = (i + 1) as f64 / 5.0;
        *r = (x[0] + t * x[1] - t.exp()).powi(2) + (x[2] + t.sin() * x[3] - t.cos()).powi(2);
    }
}

fn chebyquad(x: &[f64], r: &mut [f64]) {
    r.fill(0.0);
    for x in x {
        // Chebyshev polynomials of 2 x − 1, by their recursion
        let mut previous = 1.0;
        let mut polynomial = 2.0 * x - 1.0;
        let factor = 2.0 * polynomial;
        for r in r.iter_mut() {
            *r += polynomial;
            let next = factor * polynomial - previous;
            previous = polynomial;
            polynomial = next;
        }
    }
    for (i, r) in r.iter_mut().enumerate() {
        let k = (i + 1) as f64;
        *r /= x.len() as f64;
        if i % 2 == 1 {
            *r += 1.0 / (k * k - 1.0);
        }
    }
}

fn almost_linear(x: &[f64], r: &mut [f64]) {
    let n = x.len();
    let sum = x.iter().sum::<f64>() - (n + 1) as f64;
    r.iter_mut().zip(x).for_each(|(r, x)| *r = x + sum);
    r[n - 1] = x.iter().product::<f64>() - 1.0;
}

fn osborne_1(x: &[f64], r: &mut [f64]) {
    const Y: [f64; 33] = [
        0.844, 0.908, 0.932, 0.936, 0.925, 0.908, 0.881, 0.85, 0.818, 0.784, 0.751, 0.718, 0.685,
        0.658, 0.628, 0.603, 0.58, 0.558, 0.538, 0.522, 0.506, 0.49, 0.478, 0.467, 0.457, 0.448,
        0.438, 0.431, 0.424, 0.42, 0.414, 0.411, 0.406,
    ];
    for (i, r) in r.iter_mut().enumerate() {
        let t = 10.0 * i as f64;
        *r = Y[i] - (x[0] + x[1] * (-t * x[3]).exp() + x[2] * (-t * x[4]).exp());
    }
}

fn osborne_2(x: &[f64], r: &mut [f64]) {
    const Y: [f64; 65] = [
        1.366, 1.191, 1.112, 1.013, 0.991, 0.885, 0.831, 0.847, 0.786, 0.725, 0.746, 0.679, 0.608,
        0.655, 0.616, 0.606, 0.602, 0.626, 0.651, 0.724, 0.649, 0.649, 0.694, 0.644, 0.624, 0.661,
        0.612, 0.558, 0.533, 0.495, 0.5, 0.423, 0.395, 0.375, 0.372, 0.391, 0.396, 0.405, 0.428,
        0.429, 0.523, 0.562, 0.607, 0.653, 0.672, 0.708, 0.633, 0.668, 0.645, 0.632, 0.591, 0.559,
        0.597, 0.625, 0.739, 0.71, 0.729, 0.72, 0.636, 0.581, 0.428, 0.292, 0.162, 0.098, 0.054,
    ];
    for (i, r) in r.iter_mut().enumerate() {
        let t = i as f64 / 10.0;
        let peak = |p: usize| x[p] * (-x[4 + p] * (t - x[7 + p]).powi(2)).exp();
        *r = Y[i] - (x[0] * (-t * x[4]).exp() + peak(1) + peak(2) + peak(3));
    }
}
