// The Faddeeva function w(z) = exp(-z^2) erfc(-iz) and its derivatives, for formulas: a trapezoidal rule and the
// residue of the pole that it passes (Al Azah & Chandler-Wilde 2021). Twin of src/math/faddeeva, which has the
// formulas. Tested against f64 on every adapter.
//@use math, functions

// Distance h of the nodes.
const FADDEEVA_STEP: f32 = 0.66992459;
// h/2 as a sum, the products of whose first part with small whole numbers are exact.
const FADDEEVA_HALF_STEP = vec2<f32>(0.3359375, -9.7520715e-4);
// 2 pi/h.
const FADDEEVA_TURN: f32 = 9.3789442;
// Where exp(-x^2) is zero.
const FADDEEVA_NO_BELL: f32 = 11.0;
// Where w(z) is i/(sqrt(pi) z) to rounding.
const FADDEEVA_FAR: f32 = 1e4;
// Smallest |z|^2 at which the asymptotic series of the derivatives are used.
const FADDEEVA_ASYMPTOTIC: f32 = 25.0;
const FADDEEVA_LARGEST: f32 = 1e30;

// The product of two complex numbers.
fn faddeeva_product(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// |x| and |y|, limited; NaN stays.
fn faddeeva_quadrant(x: f32, y: f32) -> vec2<f32> {
    let z = vec2<f32>(abs(x), abs(y));
    return select(z, vec2<f32>(FADDEEVA_LARGEST), z > vec2<f32>(FADDEEVA_LARGEST));
}

// exp(-z^2): 0 where its size is, and real on both axes.
fn faddeeva_bell(x: f32, y: f32) -> vec2<f32> {
    let angle = 2.0 * x * y;
    let size = expf((y - x) * (y + x));
    let re = select(size * cosf(angle), 0.0, size == 0.0);
    return vec2<f32>(re, select(-size * sinf(angle), 0.0, size == 0.0 || angle == 0.0));
}

// exp(-x^2) for x >= 0, whose relative error does not grow with x.
fn faddeeva_gauss(x: f32) -> f32 {
    let head = bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
    return expf(-(head * head)) * expf(-((x - head) * (x + head)));
}

// The terms of the sum for the node t: real and imaginary part, divided by y and x.
fn faddeeva_term(z: vec2<f32>, t: f32, weight: f32) -> vec2<f32> {
    let square = dot(z, z);
    let distances = ((z.x - t) * (z.x - t) + z.y * z.y) * ((z.x + t) * (z.x + t) + z.y * z.y);
    return vec2<f32>(square + t * t, square - t * t) * (weight / distances);
}

// w(x + iy) for x and y from 0 to FADDEEVA_LARGEST.
fn faddeeva_rule(far: vec2<f32>) -> vec2<f32> {
    let scale = max(1.0, max(far.x, far.y) / FADDEEVA_FAR);
    let z = far / scale;
    // x is a multiple of h/2 and an offset; the nodes are the odd multiples if it is an even one
    let near = min(z.x, FADDEEVA_NO_BELL);
    let k = floor(near * (2.0 / FADDEEVA_STEP) + 0.5);
    let offset = (near - k * FADDEEVA_HALF_STEP.x) - k * FADDEEVA_HALF_STEP.y;
    let is_even = floor(0.5 * k) == 0.5 * k;
    let first = select(0.0, 0.5 * FADDEEVA_STEP, is_even);
    var sum = faddeeva_term(z, first, select(0.21324362, 0.38122231, is_even));
    sum += faddeeva_term(z, first + FADDEEVA_STEP, select(0.27226708, 0.15536618, is_even));
    sum += faddeeva_term(z, first + 2.0 * FADDEEVA_STEP, select(7.0837367e-2, 2.5805535e-2, is_even));
    sum += faddeeva_term(z, first + 3.0 * FADDEEVA_STEP, select(7.5111748e-3, 1.7468170e-3, is_even));
    sum += faddeeva_term(z, first + 4.0 * FADDEEVA_STEP, select(3.2458729e-4, 4.8190359e-5, is_even));
    sum += faddeeva_term(z, first + 5.0 * FADDEEVA_STEP, select(5.7165413e-6, 5.4181507e-7, is_even));
    sum += faddeeva_term(z, first + 6.0 * FADDEEVA_STEP, select(4.1031119e-8, 2.4826768e-9, is_even));
    // the residue
    let y = min(z.y, 0.5 * FADDEEVA_TURN);
    let decay = expf(-FADDEEVA_TURN * y);
    let angle = FADDEEVA_TURN * offset;
    let double = 2.0 * near * y;
    let denominator = decay * decay + 2.0 * decay * cosf(angle) + 1.0;
    let height = 2.0 * expf(y * (y - FADDEEVA_TURN)) * faddeeva_gauss(near) / denominator;
    let turned = faddeeva_product(vec2<f32>(cosf(double), -sinf(double)), vec2<f32>(decay + cosf(angle), sinf(angle)));
    let residue = select(vec2<f32>(0.0), height * turned, z.y < 0.5 * FADDEEVA_TURN);
    return (z.yx * sum + residue) / scale;
}

// w, its first or its second derivative at z for x, y >= 0; the derivatives far from 0 by their asymptotic series.
fn faddeeva_in_quadrant(z: vec2<f32>, order: u32) -> vec2<f32> {
    let square = dot(z, z);
    if order == 0u || square < FADDEEVA_ASYMPTOTIC {
        let w = faddeeva_rule(z);
        if order == 0u {
            return w;
        }
        let slope = vec2<f32>(0.0, 1.12837917) - 2.0 * faddeeva_product(z, w);
        if order == 1u {
            return slope;
        }
        return -2.0 * (w + faddeeva_product(z, slope));
    }
    let inverse = vec2<f32>(z.x / square, -(z.y / square));
    let power = faddeeva_product(inverse, inverse);
    let half = 0.5 * power;
    let first = order == 1u;
    var sum = vec2<f32>(select(16216200.0, 2027025.0, first), 0.0);
    sum = faddeeva_product(sum, half) + vec2<f32>(select(945945.0, 135135.0, first), 0.0);
    sum = faddeeva_product(sum, half) + vec2<f32>(select(62370.0, 10395.0, first), 0.0);
    sum = faddeeva_product(sum, half) + vec2<f32>(select(4725.0, 945.0, first), 0.0);
    sum = faddeeva_product(sum, half) + vec2<f32>(select(420.0, 105.0, first), 0.0);
    sum = faddeeva_product(sum, half) + vec2<f32>(select(45.0, 15.0, first), 0.0);
    sum = faddeeva_product(sum, half) + vec2<f32>(select(6.0, 3.0, first), 0.0);
    sum = faddeeva_product(sum, half) + vec2<f32>(1.0, 0.0);
    let far = faddeeva_product(sum, power);
    if first {
        return 0.56418958 * vec2<f32>(far.y, -far.x);
    }
    let farther = faddeeva_product(far, inverse);
    return 1.12837917 * vec2<f32>(-farther.y, farther.x);
}

// w, its first or its second derivative at x + iy; in the lower half-plane by w(z) = 2 exp(-z^2) - w(-z).
fn faddeeva(x: f32, y: f32, order: u32) -> vec2<f32> {
    let quadrant = faddeeva_in_quadrant(faddeeva_quadrant(x, y), order);
    let left = select(vec2<f32>(quadrant.x, -quadrant.y), vec2<f32>(-quadrant.x, quadrant.y), order == 1u);
    let upper = select(quadrant, left, x < 0.0);
    if y < 0.0 {
        let z = vec2<f32>(x, y);
        let bell = faddeeva_bell(x, y);
        var residue = 2.0 * bell;
        if order == 1u {
            residue = faddeeva_product(-4.0 * z, bell);
        } else if order == 2u {
            residue = faddeeva_product(8.0 * faddeeva_product(z, z) - vec2<f32>(4.0, 0.0), bell);
        }
        return residue + vec2<f32>(-upper.x, upper.y);
    }
    return upper;
}

fn faddeeva_re(x: f32, y: f32) -> f32 {
    return faddeeva(x, y, 0u).x;
}

fn faddeeva_im(x: f32, y: f32) -> f32 {
    return faddeeva(x, y, 0u).y;
}
