//! Labels as a recording sees them: where a value comes from and how it is scaled.

/// An emulator's label: where its value comes from and how it is scaled, z = (transform(x) − mean) / std.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelInput {
    pub source: Source,
    pub transform: Transform,
    pub mean: f64,
    pub std: f64,
}

/// A label's physical value.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Index into [`Recording::parameters`](super::Recording::parameters).
    Parameter(usize),
    Fixed(f64),
    /// Tied: constant + Σ factor · parameter, both physical.
    Linear {
        constant: f64,
        terms: Vec<(usize, f64)>,
    },
}

impl Source {
    /// The value where parameter p has the physical value `at(p)`.
    pub fn value(&self, at: impl Fn(usize) -> f64) -> f64 {
        match self {
            Source::Parameter(p) => at(*p),
            Source::Fixed(x) => *x,
            Source::Linear { constant, terms } => {
                terms.iter().fold(*constant, |sum, (p, factor)| sum + factor * at(*p))
            }
        }
    }

    /// The smallest and the largest value where parameter p is within `bounds(p)`.
    pub fn range(&self, bounds: impl Fn(usize) -> (f64, f64)) -> (f64, f64) {
        let slopes = self.slopes();
        let end = |is_high: bool| {
            self.value(|p| {
                let rises = slopes.iter().find(|(q, _)| *q == p).is_none_or(|(_, slope)| *slope >= 0.0);
                let (lower, upper) = bounds(p);
                if rises == is_high { upper } else { lower }
            })
        };
        (end(false), end(true))
    }

    /// The parameters that it depends on, with the derivative of the value by each.
    pub fn slopes(&self) -> Vec<(usize, f64)> {
        match self {
            Source::Parameter(p) => vec![(*p, 1.0)],
            Source::Fixed(_) => Vec::new(),
            Source::Linear { terms, .. } => terms.clone(),
        }
    }
}

/// The parameter of each tangent row of some labels: those that they depend on, in the order in which they appear.
pub fn tangents(inputs: &[LabelInput]) -> Vec<usize> {
    let mut all = Vec::new();
    for (p, _) in inputs.iter().flat_map(|input| input.source.slopes()) {
        if !all.contains(&p) {
            all.push(p);
        }
    }
    all
}

/// Function of a label before its scaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transform {
    Identity,
    Log10,
}

crate::words::named!(Transform, "transform", ["identity" => Identity, "log10" => Log10]);
