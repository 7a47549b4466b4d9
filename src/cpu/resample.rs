//! Doppler shift and resampling of template rows onto a spectrum's pixels (design §2.3): pixel j reads fractional index
//! q_j − atanh(v/c)/Δlnλ, whole and fractional parts kept apart. Rows out: value, ∂/∂u of the velocity, tangents.
//! Twin of `shaders/resample.wgsl`.

use pulp::NullaryFnOnce;

use crate::rows::Real;
use crate::rows::taps::{CHUNK, Places, apply};
use crate::solver::recording::{Interpolation, LIGHT, Parameter, Resample as Stage, Segment, Velocity};

/// Template pixels that no shift exceeds.
const FARTHEST: f64 = (1 << 25) as f64;

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

/// The shift of one segment in pixels, split; what its pixels are held to.
#[derive(Clone, Copy)]
struct Shift<R> {
    whole: i32,
    fraction: R,
    start: i32,
    /// Last pixel.
    last: i32,
    /// d(fractional index)/du of the velocity.
    slope: R,
}

/// A chunk's places, its taps' weights (4, chunk) and their derivatives by the velocity.
struct Chunk<R> {
    places: Places,
    value: Vec<R>,
    slope: Vec<R>,
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
        let split = |segment: &Segment| split(segment, shift, slope * dv);
        let shifts: Vec<Shift<R>> = self.stage.segments.iter().map(split).collect();
        let (pixels, columns) = (self.stage.pixels, self.stage.input_columns);
        let has_velocity = self.stage.output_rows() > self.stage.rows;
        let zeros = || vec![R::ZERO; 4 * CHUNK];
        let mut chunk = Chunk { places: Places::new(), value: zeros(), slope: zeros() };
        for start in (0..pixels).step_by(CHUNK) {
            let count = CHUNK.min(pixels - start);
            let (index, fraction) = (&self.index[start..start + count], &self.fraction[start..start + count]);
            chunk.fill(index, fraction, &shifts, self.stage.interpolation);
            chunk.places.settle(columns);
            for row in 0..self.stage.rows {
                let input = &self.input[row * columns..][..columns];
                let target = if row == 0 || !has_velocity { row } else { row + 1 };
                apply(&chunk.places, &chunk.value, input, &mut self.output[target * pixels + start..][..count]);
            }
            if has_velocity {
                let output = &mut self.output[pixels + start..][..count];
                apply(&chunk.places, &chunk.slope, &self.input[..columns], output);
            }
        }
    }
}

/// `by_u`: d(atanh(v/c))/du.
fn split<R: Real>(segment: &Segment, shift: f64, by_u: f64) -> Shift<R> {
    let s = shift * segment.inverse_step;
    let whole = s.floor();
    Shift {
        // pixels that are shifted further than any template reaches end at its edge all the same
        whole: whole.clamp(-FARTHEST, FARTHEST) as i32,
        fraction: R::of(s - whole),
        start: segment.start as i32,
        last: segment.end as i32 - 1,
        slope: R::of(-segment.inverse_step * by_u),
    }
}

#[inline(always)]
fn pick<T>(condition: bool, yes: T, no: T) -> T {
    if condition { yes } else { no }
}

impl<R: Real> Chunk<R> {
    /// Fills the taps of at most a chunk of pixels. `index` as the model packs it, segment and pixel, or −1.
    #[inline(always)]
    fn fill(&mut self, index: &[i32], fraction: &[R], shifts: &[Shift<R>], interpolation: Interpolation) {
        let mut packed = [-1i32; CHUNK];
        packed[..index.len()].copy_from_slice(index);
        let (mut position, mut on, mut slope) = ([R::ZERO; CHUNK], [R::ZERO; CHUNK], [R::ZERO; CHUNK]);
        position[..index.len()].copy_from_slice(fraction);
        // the first tap that is read, and that were it not for edges
        let (mut base, mut before) = ([0i32; CHUNK], [0i32; CHUNK]);
        // segments follow one another
        let mut counted = packed.iter().filter(|p| **p >= 0);
        let lowest = counted.next().map_or(0, |p| p >> 24);
        let highest = counted.next_back().map_or(lowest, |p| p >> 24);
        // nearly always one segment, and nothing where all is masked
        for (segment, shift) in (0..=highest).zip(shifts).skip(lowest as usize) {
            // copied, and every array read before it is written: else the compiler makes no vectors of this
            let Shift { whole, fraction, start, last, slope: by_u } = *shift;
            let highest_base = (last - 3).max(start);
            for i in 0..CHUNK {
                let own = packed[i] >> 24 == segment;
                let old = (position[i], slope[i], on[i], before[i], base[i]);
                let (k, x) = ((packed[i] & 0xff_ffff) - whole, old.0 - fraction);
                let borrows = x < R::ZERO;
                let (k, x) = (k - i32::from(borrows), pick(borrows, x + R::ONE, x));
                let held = (k < start) | (k >= last);
                let k = k.max(start).min(last) - 1;
                position[i] = pick(own, pick(held, R::ZERO, x), old.0);
                slope[i] = pick(own, pick(held, R::ZERO, by_u), old.1);
                on[i] = pick(own, R::ONE, old.2);
                before[i] = pick(own, k, old.3);
                base[i] = pick(own, k.max(start).min(highest_base), old.4);
            }
        }
        self.places.base = base;
        self.weigh(&position, interpolation);
        for (value, by_u) in self.value.chunks_exact_mut(CHUNK).zip(self.slope.chunks_exact_mut(CHUNK)) {
            (0..CHUNK).for_each(|i| value[i] *= on[i]);
            (0..CHUNK).for_each(|i| by_u[i] *= slope[i]);
        }
        self.mend(&packed, &before, shifts);
    }

    /// Folds taps beyond a segment's edges onto the edge; puts masked pixels beside their neighbours, so that they share a window.
    #[inline(always)]
    fn mend(&mut self, packed: &[i32; CHUNK], before: &[i32; CHUNK], shifts: &[Shift<R>]) {
        let base = &mut self.places.base;
        let mut odd = false;
        (0..CHUNK).for_each(|i| odd |= (packed[i] < 0) | (base[i] != before[i]));
        if !odd {
            return;
        }
        let mut neighbour = packed.iter().position(|p| *p >= 0).map_or(0, |i| base[i]);
        for i in 0..CHUNK {
            if packed[i] < 0 {
                base[i] = neighbour;
            } else if base[i] != before[i] {
                let shift = &shifts[(packed[i] >> 24) as usize];
                fold(&mut self.value, i, before[i], base[i], shift);
                fold(&mut self.slope, i, before[i], base[i], shift);
            }
            neighbour = base[i];
        }
    }
}

/// Moves the weights of pixel `i` from taps at `before`… to taps at `base`…, none beyond the segment's edges.
fn fold<R: Real>(weight: &mut [R], i: usize, before: i32, base: i32, shift: &Shift<R>) {
    let old: [R; 4] = std::array::from_fn(|t| weight[t * CHUNK + i]);
    (0..4).for_each(|t| weight[t * CHUNK + i] = R::ZERO);
    for (t, w) in (0..).zip(old) {
        let at = ((before + t).clamp(shift.start, shift.last) - base) as usize;
        weight[at * CHUNK + i] += w;
    }
}

impl<R: Real> Chunk<R> {
    /// Weights of taps k − 1 … k + 2 at fraction x, and their derivatives by x.
    #[inline(always)]
    fn weigh(&mut self, position: &[R; CHUNK], interpolation: Interpolation) {
        let (one, sixth) = (R::ONE, R::of(1.0 / 6.0));
        let (two, three, four, six, nine, twelve) =
            (R::of(2.0), R::of(3.0), R::of(4.0), R::of(6.0), R::of(9.0), R::of(12.0));
        let (value, slope) = (&mut self.value[..4 * CHUNK], &mut self.slope[..4 * CHUNK]);
        if interpolation == Interpolation::Linear {
            for (i, &x) in position.iter().enumerate() {
                (value[i], value[CHUNK + i], value[2 * CHUNK + i], value[3 * CHUNK + i]) =
                    (R::ZERO, one - x, x, R::ZERO);
                (slope[i], slope[CHUNK + i], slope[2 * CHUNK + i], slope[3 * CHUNK + i]) =
                    (R::ZERO, -one, one, R::ZERO);
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
}
