// Small fits: Levenberg-Marquardt of one fit an invocation, from its start to its end (src/solver/small/mod.rs). The
// numbers of a fit are private arrays, indexed by constants once functions are inlined, so that compilers keep them in
// registers.
//
// observed (fits, OBSERVED: y, weights and a grid, where fits have them), given (fits, GIVEN: start, units, lower and
// upper bounds, where fits have them), grid (predictors x POINTS, where they share one): f32. result, by blocks of
// fits: (BLOCK, PARAMETERS) parameters, as many variances, (BLOCK) chi2, (BLOCK) ends and (BLOCK, PAIRS) correlations
// if they are requested: bits.
// src/solver/small/packing.rs has the rows. fill(), predictors_at(), weight_at(), unit_at() and exponent_rounding() are
// generated. Twin of src/cpu/small.rs and src/cpu/lanes.
//@use functions, gamma, faddeeva, small_fit

// The observations of a workgroup's fits that all rounds read. The stride is odd, so that no two invocations meet in a
// bank.
var<workgroup> tile: array<f32, FITS * STRIDE>;

// Sets the sums at the trial point: cost, gradient and normal matrix.
fn linearise(fit: u32, lane: u32) {
    var parameters = trial;
    var row: array<f32, ROWS>;
    var chi2 = 0.0;
    //@for p 0 PARAMETERS
    var slope$p = 0.0;
    //@for q 0 $p+1
    var product$p_$q = 0.0;
    //@end
    //@end
    for (var point = 0u; point < POINTS; point++) {
        let weight = weight_at(point, lane);
        // a masked row may be anything, even NaN
        if weight > 0.0 {
            fill(predictors_at(point, fit), &parameters, &row);
            let residual = weight * (tile[lane * STRIDE + point] - row[0]);
            chi2 += residual * residual;
            //@for p 0 PARAMETERS
            let derivative$p = weight * row[1 + $p];
            slope$p += derivative$p * residual;
            //@for q 0 $p+1
            product$p_$q += derivative$p * derivative$q;
            //@end
            //@end
        }
    }
    trial_cost = chi2;
    //@for p 0 PARAMETERS
    trial_gradient[$p] = slope$p;
    //@for q 0 $p+1
    trial_normal[$p][$q] = product$p_$q;
    //@end
    //@end
}

// Accepts or rejects the trial point by its cost, and updates the damping (Nielsen 1999, eqs. 2.20-2.21). The first
// point is accepted, whatever it is; true if its sums are not finite. A cost may be higher by less than its rounding. A
// shortened step may gain less than that: it is accepted as if its gain ratio were a half, at which the damping stays.
// So is the first point, which no step predicted.
fn judge() -> bool {
    let predicted_reduction = abs(promise);
    let reciprocal = 1.0 / predicted_reduction;
    var sum = trial_cost;
    //@for p 0 PARAMETERS
    sum += trial_normal[$p][$p];
    //@end
    let first = rounds == 0;
    let finite = is_finite(sum);
    let gain_is_hidden = SHORTENS & (promise < 0.0) & (predicted_reduction <= NOISE * cost);
    let lower = (trial_cost < cost * (1.0 + NOISE)) | (gain_is_hidden & (trial_cost <= cost * (1.0 + NOISE)));
    let is_meaningless = gain_is_hidden | (predicted_reduction == 0.0);
    let gain_ratio = select(max((cost - trial_cost) * reciprocal, 0.0), 0.5, is_meaningless);
    rounds += 1;
    if first | (finite & lower) {
        let centred = 2.0 * gain_ratio - 1.0;
        mu *= max(1.0 / 3.0, 1.0 - centred * centred * centred);
        nu = 2.0;
        rejections = 0;
        accepted = trial;
        cost = trial_cost;
        gradient = trial_gradient;
        normal = trial_normal;
    } else {
        mu *= nu;
        nu *= 2.0;
        rejections += 1;
    }
    return first & !finite;
}

// True if no free column of the Jacobian has a cosine with the residual above GTOL.
fn is_flat() -> bool {
    let residual = sqrt(cost);
    //@for p 0 PARAMETERS
    let column$p = sqrt(normal[$p][$p]);
    //@end
    let length = GTOL * residual;
    var excess = -1.0;
    //@for p 0 PARAMETERS
    excess = max(excess, select(-1.0, abs(gradient[$p]) - length * column$p, is_free($pu)));
    //@end
    return excess <= 0.0;
}

// The predictions of a step, 2 g d and d A d, and the squared lengths by which convergence is judged.
struct Promises {
    gain: f32,
    loss: f32,
    length: f32,
    size: f32,
}

fn promises() -> Promises {
    var all = Promises(0.0, 0.0, 0.0, 0.0);
    var square = 0.0; // d D d
    //@for p 0 PARAMETERS
    {
        let d = delta[$p];
        let diagonal = normal[$p][$p];
        all.gain += 2.0 * d * gradient[$p];
        square += damped(diagonal, least_magnitude[$p]) * d * d;
        all.length += diagonal * d * d;
        all.size += select(0.0, diagonal * accepted[$p] * accepted[$p], moves($pu));
    }
    //@end
    all.loss = curvature(all.gain, mu * square);
    return all;
}

// True if the step moves no parameter by more than TRUSTED_STEP of its magnitude, and leaves all their signs.
fn is_trusted() -> bool {
    var excess = -1.0;
    //@for p 0 PARAMETERS
    excess = max(excess, abs(delta[$p]) - TRUSTED_STEP * max(abs(accepted[$p]), least_magnitude[$p]));
    excess = max(excess, -accepted[$p] * (accepted[$p] + delta[$p]));
    //@end
    return excess <= 0.0;
}

// Shortens a step that moves a parameter by more than LARGEST_STEP times its magnitude; returns the share that is left.
fn shorten() -> f32 {
    var share = 1.0;
    if !SHORTENS {
        return share;
    }
    //@for p 0 PARAMETERS
    {
        let longest = LARGEST_STEP * max(abs(accepted[$p]), least_magnitude[$p]);
        share = min(share, select(1.0, longest / abs(delta[$p]), abs(delta[$p]) > longest));
    }
    //@end
    //@for p 0 PARAMETERS
    delta[$p] *= share;
    //@end
    return share;
}

// Decides whether the fit ends, and sets the next trial point to the end of the step. A trusted last step is taken
// without an evaluation.
fn choose() {
    let reciprocal = 1.0 / promise;
    let all = promises();
    let trusted = is_trusted(); // by the whole step: convergence is not judged by a shortened one
    let share = shorten();
    let reduction = all.gain - all.loss;
    // 1. Compare the reduction that all remaining steps predict together with the tolerance.
    let comparable = (promise > 0.0) & (rejections == 0) & (share == 1.0);
    let contraction = clamp(reduction * reciprocal, LAST_CONTRACTION, 1.0);
    let remaining = select(reduction, reduction * contraction, comparable);
    let shrinkage = 1.0 - sqrt(contraction);
    limit = TOLERANCE * min(cost, LARGEST_COST);
    let total_factor = select(1.0, min(1.0, TOTAL_REDUCTION_FACTOR * shrinkage * shrinkage), comparable);
    is_near = remaining <= limit * total_factor;
    // 2. A step that is not trusted is evaluated, unless it predicts too small a reduction to be taken at all. A
    // reduction that no longer shrinks is rounding.
    let stagnates = !comparable | (reduction > STAGNATION_RATIO * promise);
    let ends = is_near & (trusted | (reduction <= limit));
    var small_reduction = ends | (stagnates & (remaining <= LEAST_FTOL * cost));
    var small_step = all.length <= XTOL * XTOL * all.size;
    // 3. Release the floor of the damping's diagonal, so that parameters that it held back move, too.
    if HAS_FLOOR & !undamped & (mu < UNDAMPED) & (small_reduction | small_step | (rounds >= MAX_FLOOR_ROUNDS)) {
        floor_share = 0.0;
    }
    small_reduction = small_reduction & undamped;
    small_step = small_step & undamped;
    // 4. The status; later reasons take precedence.
    status = select(RUNNING, MAX_ROUNDS_STATUS, rounds >= MAX_ROUNDS);
    status = select(status, STALLED, rejections > MAX_REJECTIONS);
    status = select(status, XTOL_STATUS, small_step);
    status = select(status, FTOL_STATUS, small_reduction);
    status = select(status, FTOL_XTOL_STATUS, small_reduction & small_step);
    promise = select(reduction, -share * (all.gain - share * all.loss), share < 1.0);
    advance();
    if trusted & (small_reduction | small_step) {
        accepted = trial;
        cost = max(cost - abs(promise), 0.0);
    }
}

// Sets variances, the diagonal of the inverse normal matrix, and tells whether f32 is precise enough for the fit to end
// here. The variances are in delta. Residuals that are wrong by e move the solution by at most |e| / sigma errors. A
// Jacobian and sums that are wrong by a share E of each column move it by
//     E |r| / sigma sqrt(P sum_p A_pp (A^-1)_pp).
// Sums over N points are wrong by sqrt(N) roundings (Higham & Mary 2019). The errors of the values are bounded by the
// sums of the fit (SumRounding in src/solver/small/mod.rs).
fn is_sure() -> bool {
    free_all();
    mu = 0.0;
    lowest = 0.0;
    var least = factorise();
    var inflation = 0.0;
    var inside = true;
    // (A^-1)_pp = sum over i of v_i^2 / D_i, v = L^-1 e_p
    //@for p 0 PARAMETERS
    {
        var variance = inverse[$p];
        let v$p = 1.0;
        //@for i $p+1 PARAMETERS
        var v$i = 0.0;
        //@for k $p $i
        v$i -= factor[$i][$k] * v$k;
        //@end
        variance += v$i * v$i * inverse[$i];
        //@end
        delta[$p] = variance;
        inflation += normal[$p][$p] * variance;
        least = min(least, normal[$p][$p]);
        inside = inside & is_inside($pu);
    }
    //@end
    let scale = abs(accepted[0]);
    let offset = accepted[LAST];
    let squares = normal[0][0];
    let value_squared = scale * scale * squares + 2.0 * accepted[0] * offset * normal[LAST][0]
        + offset * offset * normal[LAST][LAST];
    // divisions and roots stand together, because each alone is waited for
    //@for p 0 PARAMETERS
    let information$p = 1.0 / delta[$p];
    //@end
    var moved = 0.0;
    //@for p 0 PARAMETERS
    moved += accepted[$p] * accepted[$p] * information$p;
    //@end
    let value = sqrt(max(value_squared, 0.0));
    let amplitude = sqrt(squares);
    let exponent = exponent_rounding();
    let of_parameters = sqrt(moved);
    let error = sqrt(f32(PARAMETERS) * inflation * cost);
    let allowed = ROUNDING_SHARE * sqrt(limit);
    let bound = ROUNDINGS_OF_EXPONENT * exponent + OTHER_ROUNDINGS * scale * amplitude + value;
    // data are rounded, too, and derivatives are about as accurate as the value
    let points = f32(POINTS);
    let of_columns = (2.0 * bound / value + sqrt(points)) * error;
    let shift = HALF_ULP_OF_F32 * (2.0 * bound + of_columns + of_parameters);
    let has_variances = inflation <= MAX_VARIANCE_ERROR / (HALF_ULP_OF_F32 * points);
    return inside & has_variances & (shift <= allowed) & (min(least, value) > 0.0) & (cost > LEAST_COST);
}

// Writes the correlations C_pq / sqrt(C_pp C_qq), q < p, of C = A^-1, whose diagonal is_sure() has left in delta, from
// `first` on: C_pq = sum over i >= p of W_ip W_iq / D_i with W = L^-1, which takes the place of L. CORRELATED is
// PARAMETERS, or 0 if they are not requested.
fn put_correlations(first: u32) {
    //@for q 0 CORRELATED
    //@for i $q+1 CORRELATED
    {
        var w = -factor[$i][$q];
        //@for k $q+1 $i
        w -= factor[$i][$k] * factor[$k][$q];
        //@end
        factor[$i][$q] = w;
    }
    //@end
    //@end
    //@for p 1 CORRELATED
    //@for q 0 $p
    {
        var sum = factor[$p][$q] * inverse[$p];
        //@for i $p+1 CORRELATED
        sum += factor[$i][$p] * factor[$i][$q] * inverse[$i];
        //@end
        result[first + u32($p * ($p - 1) / 2 + $q)] = bitcast<u32>(sum / (sqrt(delta[$p]) * sqrt(delta[$q])));
    }
    //@end
    //@end
}

@compute @workgroup_size(FITS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first = group.x * FITS;
    for (var i = lane; i < FITS * COUNTED; i += FITS) {
        let row = i / COUNTED;
        tile[i + row * (STRIDE - COUNTED)] = observed[first * OBSERVED + i + row * (OBSERVED - COUNTED)];
    }
    workgroupBarrier();
    let fit = first + lane;
    begin(fit);
    var attempts = 0u; // number of matrices that did not factorise, each with the damping raised
    while status == RUNNING {
        if attempts == 0u {
            linearise(fit, lane);
            let is_lost = judge();
            set_free();
            status = select(select(RUNNING, GTOL_STATUS, is_flat()), NOT_FINITE, is_lost);
        }
        if status == RUNNING {
            if solve() {
                attempts = 0u;
                choose();
            } else {
                mu = max(DAMPING_RAISE * mu, LEAST_RAISED_DAMPING);
                attempts += 1u;
                status = select(RUNNING, SINGULAR, attempts == SOLVE_ATTEMPTS);
            }
        }
    }
    // not GTOL, whose code is lower than those of steps: is_near belongs to the point before
    var sure = false;
    if SUMS_TELL && status >= FTOL_STATUS && is_near {
        sure = is_sure();
    }
    // f64 continues from the reduction that the last step predicted
    delta[0] = select(promise, delta[0], sure);
    let block = fit / BLOCK * BLOCK * RESULT;
    let place = fit % BLOCK;
    //@for p 0 PARAMETERS
    result[block + place * PARAMETERS + $pu] = bitcast<u32>(accepted[$p]);
    result[block + (BLOCK + place) * PARAMETERS + $pu] = bitcast<u32>(delta[$p]);
    //@end
    let ends = block + 2u * BLOCK * PARAMETERS;
    result[ends + place] = bitcast<u32>(cost);
    result[ends + BLOCK + place] =
        (bitcast<u32>(status) & 0xffu) | (u32(rounds) << ROUNDS_SHIFT) | select(0u, SURE, sure);
    if sure {
        put_correlations(ends + 2u * BLOCK + place * PAIRS);
    }
}
