//! Doppler shift and resampling of template rows onto a spectrum's pixels (design §2.3): pixel j reads fractional index
//! q_j − atanh(v/c)/Δlnλ, whole and fractional parts kept apart. Rows out: value, ∂/∂u of the velocity, tangents.
//! Twin of `shaders/resample.wgsl`.

use pulp::NullaryFnOnce;

use crate::rows::Real;
use crate::solver::recording::{Interpolation, LIGHT, Parameter, Resample as Stage, Segment, Velocity};

/// Pixels whose weights are computed together.
const CHUNK: usize = 64;

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

/// Taps of a chunk of pixels: `weight[t][i]` multiplies coefficient `base[i] + t`.
struct Taps<R> {
    base: [usize; CHUNK],
    value: [[R; CHUNK]; 4],
    slope: [[R; CHUNK]; 4],
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
        let has_velocity = matches!(self.stage.velocity, Velocity::Parameter(_));
        let by_velocity: Vec<R> = self.stage.segments.iter().map(|s| R::of(-s.inverse_step * slope * dv)).collect();
        let mut taps = Taps { base: [0; CHUNK], value: [[R::ZERO; CHUNK]; 4], slope: [[R::ZERO; CHUNK]; 4] };
        for start in (0..pixels).step_by(CHUNK) {
            let count = CHUNK.min(pixels - start);
            let (index, fraction) = (&self.index[start..start + count], &self.fraction[start..start + count]);
            fill(&mut taps, index, fraction, &shifts, self.stage, &by_velocity, has_velocity);
            for row in 0..self.stage.rows {
                let input = &self.input[row * self.stage.input_columns..][..self.stage.input_columns];
                let target = if row == 0 || !has_velocity { row } else { row + 1 };
                let output = &mut self.output[target * pixels + start..][..count];
                apply(&taps.base, &taps.value, input, output);
            }
            if has_velocity {
                let input = &self.input[..self.stage.input_columns];
                apply(&taps.base, &taps.slope, input, &mut self.output[pixels + start..][..count]);
            }
        }
    }
}

fn split<R: Real>(segment: &Segment, shift: f64) -> Shift<R> {
    let s = shift * segment.inverse_step;
    let whole = s.floor();
    Shift { whole: whole as i64, fraction: R::of(s - whole), start: segment.start as i64, last: segment.end as i64 - 1 }
}

#[inline(always)]
fn apply<R: Real>(base: &[usize; CHUNK], weight: &[[R; CHUNK]; 4], input: &[R], output: &mut [R]) {
    for (i, out) in output.iter_mut().enumerate() {
        let c = &input[base[i]..base[i] + 4];
        let low = weight[0][i].fused(c[0], weight[1][i] * c[1]);
        let high = weight[2][i].fused(c[2], weight[3][i] * c[3]);
        *out = low + high;
    }
}

/// Fills `taps` for a chunk of pixels.
#[inline(always)]
fn fill<R: Real>(
    taps: &mut Taps<R>,
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
            (taps.base[i], whole[i], position[i], factor[i]) = (0, i64::MIN, R::ZERO, R::ZERO);
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
    weights(taps, &position, stage.interpolation);
    if has_velocity {
        for row in &mut taps.slope {
            for (w, f) in row.iter_mut().zip(&factor) {
                *w *= *f;
            }
        }
    }
    for (i, &k) in whole.iter().enumerate().take(index.len()) {
        place(taps, i, k, index[i], shifts);
    }
}

/// Weights of taps k − 1 … k + 2 at fraction x, and their derivatives by x.
#[inline(always)]
fn weights<R: Real>(taps: &mut Taps<R>, position: &[R; CHUNK], interpolation: Interpolation) {
    let (one, sixth) = (R::ONE, R::of(1.0 / 6.0));
    let (two, three, four, six, nine, twelve) =
        (R::of(2.0), R::of(3.0), R::of(4.0), R::of(6.0), R::of(9.0), R::of(12.0));
    for (i, &x) in position.iter().enumerate() {
        let y = one - x;
        match interpolation {
            Interpolation::Linear => {
                (taps.value[0][i], taps.value[1][i], taps.value[2][i], taps.value[3][i]) = (R::ZERO, y, x, R::ZERO);
                (taps.slope[0][i], taps.slope[1][i], taps.slope[2][i], taps.slope[3][i]) =
                    (R::ZERO, -one, one, R::ZERO);
            }
            Interpolation::Cubic => {
                taps.value[0][i] = y * y * y * sixth;
                taps.value[1][i] = ((three * x - six) * x * x + four) * sixth;
                taps.value[2][i] = (((three - three * x) * x + three) * x + one) * sixth;
                taps.value[3][i] = x * x * x * sixth;
                taps.slope[0][i] = -(y * y) / two;
                taps.slope[1][i] = (nine * x - twelve) * x * sixth;
                taps.slope[2][i] = ((six - nine * x) * x + three) * sixth;
                taps.slope[3][i] = x * x / two;
            }
        }
    }
}

/// Sets the base of pixel `i`; taps beyond the segment's edges are folded onto the edge.
#[inline(always)]
fn place<R: Real>(taps: &mut Taps<R>, i: usize, k: i64, packed: i32, shifts: &[Shift<R>]) {
    if packed < 0 {
        for t in 0..4 {
            (taps.value[t][i], taps.slope[t][i]) = (R::ZERO, R::ZERO);
        }
        return;
    }
    let shift = &shifts[(packed >> 24) as usize];
    let base = (k - 1).clamp(shift.start, (shift.last - 3).max(shift.start));
    taps.base[i] = base as usize;
    if base == k - 1 {
        return;
    }
    let (value, slope) = (taps.value.map(|row| row[i]), taps.slope.map(|row| row[i]));
    for t in 0..4 {
        (taps.value[t][i], taps.slope[t][i]) = (R::ZERO, R::ZERO);
    }
    for t in 0..4 {
        let at = ((k - 1 + t as i64).clamp(shift.start, shift.last) - base) as usize;
        taps.value[at][i] += value[t];
        taps.slope[at][i] += slope[t];
    }
}
