//! Doppler shift and resampling of template rows onto a spectrum's pixels (design §2.3): pixel j reads fractional index
//! q_j − atanh(v/c)/Δlnλ, whole and fractional parts kept apart. Rows out: value, ∂/∂u of the velocity, tangents.
//! Twin of `shaders/resample.wgsl`.

use pulp::NullaryFnOnce;

use crate::rows::Real;
use crate::rows::taps::{CHUNK, Taps, apply};
use crate::solver::recording::{Interpolation, LIGHT, Parameter, Resample as Stage, Segment, Velocity};

/// One member's rows.
pub struct Resample<'a, R> {
    pub stage: &'a Stage,
    pub parameters: &'a [Parameter],
    pub u: &'a [f64],
    /// (rows, input_columns)
    pub input: &'a [R],
    pub index: &'a [i32],
    pub fraction: &'a [R],
    /// (output_rows, pixels)
    pub output: &'a mut [R],
}

/// The shift of one segment in pixels, split.
#[derive(Clone, Copy)]
struct Shift<R> {
    whole: i64,
    fraction: R,
    start: i64,
    /// Last pixel.
    last: i64,
}

/// A chunk's taps and those of its derivative by the velocity.
struct Chunk<R> {
    value: Taps<R>,
    slope: Taps<R>,
}

/// atanh(v/c) and its derivative by v.
fn doppler(v: f64) -> (f64, f64) {
    let beta = v / LIGHT;
    let square = beta * beta;
    (beta * (1.0 + square * (1.0 / 3.0 + square / 5.0)), 1.0 / LIGHT / (1.0 - square))
}

impl<R: Real> Resample<'_, R> {
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }

    /// Velocity in km/s and d(velocity)/du.
    fn velocity(&self) -> (f64, f64) {
        match self.stage.velocity {
            Velocity::Fixed(v) => (v, 0.0),
            Velocity::Parameter(p) => {
                let parameter = &self.parameters[p];
                (parameter.origin + parameter.scale * self.u[p], parameter.scale)
            }
        }
    }
}

impl<R: Real> NullaryFnOnce for Resample<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (v, dv) = self.velocity();
        let (shift, slope) = doppler(v);
        let shifts: Vec<Shift<R>> = self.stage.segments.iter().map(|s| split(s, shift)).collect();
        let pixels = self.stage.pixels;
        let has_velocity = self.stage.output_rows() > self.stage.rows;
        let by_velocity: Vec<R> = self.stage.segments.iter().map(|s| R::of(-s.inverse_step * slope * dv)).collect();
        let mut chunk = Chunk { value: Taps::new(), slope: Taps::new() };
        for start in (0..pixels).step_by(CHUNK) {
            let count = CHUNK.min(pixels - start);
            let (index, fraction) = (&self.index[start..start + count], &self.fraction[start..start + count]);
            fill(&mut chunk, index, fraction, &shifts, self.stage, &by_velocity, has_velocity);
            for row in 0..self.stage.rows {
                let input = &self.input[row * self.stage.input_columns..][..self.stage.input_columns];
                let target = if row == 0 || !has_velocity { row } else { row + 1 };
                let output = &mut self.output[target * pixels + start..][..count];
                apply(&chunk.value, input, output);
            }
            if has_velocity {
                let input = &self.input[..self.stage.input_columns];
                apply(&chunk.slope, input, &mut self.output[pixels + start..][..count]);
            }
        }
    }
}

fn split<R: Real>(segment: &Segment, shift: f64) -> Shift<R> {
    let s = shift * segment.inverse_step;
    let whole = s.floor();
    Shift { whole: whole as i64, fraction: R::of(s - whole), start: segment.start as i64, last: segment.end as i64 - 1 }
}

/// Fills the taps of a chunk of pixels.
#[inline(always)]
fn fill<R: Real>(
    chunk: &mut Chunk<R>,
    index: &[i32],
    fraction: &[R],
    shifts: &[Shift<R>],
    stage: &Stage,
    by_velocity: &[R],
    has_velocity: bool,
) {
    let mut position = [R::ZERO; CHUNK];
    let mut factor = [R::ZERO; CHUNK];
    let mut whole = [0i64; CHUNK];
    for (i, (&packed, &f)) in index.iter().zip(fraction).enumerate() {
        if packed < 0 {
            (whole[i], position[i], factor[i]) = (i64::MIN, R::ZERO, R::ZERO);
            continue;
        }
        let segment = (packed >> 24) as usize;
        let shift = &shifts[segment];
        let (mut k, mut x) = (i64::from(packed & 0xff_ffff) - shift.whole, f - shift.fraction);
        if x < R::ZERO {
            (k, x) = (k - 1, x + R::ONE);
        }
        factor[i] = by_velocity[segment];
        if k < shift.start {
            (k, x, factor[i]) = (shift.start, R::ZERO, R::ZERO);
        } else if k >= shift.last {
            (k, x, factor[i]) = (shift.last, R::ZERO, R::ZERO);
        }
        (whole[i], position[i]) = (k, x);
    }
    weights(chunk, &position, stage.interpolation);
    if has_velocity {
        for row in chunk.slope.weight.chunks_exact_mut(CHUNK) {
            row.iter_mut().zip(&factor).for_each(|(w, f)| *w *= *f);
        }
    }
    for (i, &k) in whole.iter().enumerate().take(index.len()) {
        place(chunk, i, k, index[i], shifts);
    }
    chunk.slope.base = chunk.value.base;
}

/// Weights of taps k − 1 … k + 2 at fraction x, and their derivatives by x.
#[inline(always)]
fn weights<R: Real>(chunk: &mut Chunk<R>, position: &[R; CHUNK], interpolation: Interpolation) {
    let (one, sixth) = (R::ONE, R::of(1.0 / 6.0));
    let (two, three, four, six, nine, twelve) =
        (R::of(2.0), R::of(3.0), R::of(4.0), R::of(6.0), R::of(9.0), R::of(12.0));
    let (value, slope) = (&mut chunk.value.weight[..4 * CHUNK], &mut chunk.slope.weight[..4 * CHUNK]);
    if interpolation == Interpolation::Linear {
        for (i, &x) in position.iter().enumerate() {
            (value[i], value[CHUNK + i], value[2 * CHUNK + i], value[3 * CHUNK + i]) = (R::ZERO, one - x, x, R::ZERO);
            (slope[i], slope[CHUNK + i], slope[2 * CHUNK + i], slope[3 * CHUNK + i]) = (R::ZERO, -one, one, R::ZERO);
        }
        return;
    }
    for (i, &x) in position.iter().enumerate() {
        let y = one - x;
        value[i] = y * y * y * sixth;
        value[CHUNK + i] = ((three * x - six) * x * x + four) * sixth;
        value[2 * CHUNK + i] = (((three - three * x) * x + three) * x + one) * sixth;
        value[3 * CHUNK + i] = x * x * x * sixth;
        slope[i] = -(y * y) / two;
        slope[CHUNK + i] = (nine * x - twelve) * x * sixth;
        slope[2 * CHUNK + i] = ((six - nine * x) * x + three) * sixth;
        slope[3 * CHUNK + i] = x * x / two;
    }
}

/// Sets the base of pixel `i`; taps beyond the segment's edges are folded onto the edge.
#[inline(always)]
fn place<R: Real>(chunk: &mut Chunk<R>, i: usize, k: i64, packed: i32, shifts: &[Shift<R>]) {
    let (value, slope) = (&mut chunk.value, &mut chunk.slope);
    if packed < 0 {
        // beside its neighbour, so that the two share a window
        value.base[i] = if i > 0 { value.base[i - 1] } else { 0 };
        for t in 0..4 {
            (value.weight[t * CHUNK + i], slope.weight[t * CHUNK + i]) = (R::ZERO, R::ZERO);
        }
        return;
    }
    let shift = &shifts[(packed >> 24) as usize];
    let base = (k - 1).clamp(shift.start, (shift.last - 3).max(shift.start));
    value.base[i] = base as usize;
    if base == k - 1 {
        return;
    }
    for taps in [value, slope] {
        let old: [R; 4] = std::array::from_fn(|t| taps.weight[t * CHUNK + i]);
        (0..4).for_each(|t| taps.weight[t * CHUNK + i] = R::ZERO);
        for (t, w) in old.into_iter().enumerate() {
            let at = ((k - 1 + t as i64).clamp(shift.start, shift.last) - base) as usize;
            taps.weight[at * CHUNK + i] += w;
        }
    }
}
