// The curvature that the normal matrix lacks: sum r H(r), which counts where a parameter is known no better than its
// own size. Symmetric rank-one update (Nocedal & Wright 2006, eq. 6.24) of the structured secant equation (Dennis, Gay
// & Welsch 1981). For step.wgsl. Twin of src/solver/round/step/secant.rs.
//@use step_member, box

// Sets `secant`, s, such that A + s s^T predicts the change of the gradient between the two points, with A the mean
// normal matrix: zeros where the points are too far apart, where the step between them did not lead well beyond a
// minimum, or where A alone predicts the change well enough. Sets A + s s^T with it. True if s is not zero.
fn set_secant(trial_is_finite: bool) -> bool {
    // 1. Compare the change of the gradient with that which A predicts.
    var quadratic = 0.0;
    var fall_at_accepted = 0.0;
    var rise_at_other = 0.0;
    //@for p 0 PARAMETERS
    {
        var predicted = 0.0;
        //@for q 0 PARAMETERS
        {
            let other_entry = trial_sums[FIRST_ENTRY + packed_symmetric($pu, $qu)];
            predicted += 0.5 * (normal_entry($pu, $qu) + other_entry) * step_to_trial_point($qu);
        }
        //@end
        let step = step_to_trial_point($pu);
        let other_slope = trial_sums[FIRST_SLOPE + $pu];
        secant[$p] = select(0.0, gradient($pu) - other_slope - predicted, may_move[$p]);
        quadratic += select(0.0, predicted * step, may_move[$p]);
        fall_at_accepted += select(0.0, gradient($pu) * step, may_move[$p]);
        rise_at_other -= select(0.0, other_slope * step, may_move[$p]);
    }
    //@end
    // 2. The curvature along the step that A lacks.
    let missing_curvature = fall_at_accepted + rise_at_other - quadratic;
    // 3. The conditions under which it is used; before the second round there is no other point.
    let are_close = (quadratic > 0.0) & (quadratic <= CLOSE_POINTS_SHARE * accepted_cost());
    let newer_slope = select(fall_at_accepted, rise_at_other, rejections > 0);
    let older_slope = select(rise_at_other, fall_at_accepted, rejections > 0);
    let is_between = (min(fall_at_accepted, rise_at_other) > 0.0) & (newer_slope >= LEAST_SECANT_SHARE * older_slope);
    let is_large = is_between & (missing_curvature >= LEAST_SECANT_SHARE * quadratic);
    let is_usable = are_close & is_large & (rounds > 1) & trial_is_finite;
    //@for p 0 PARAMETERS
    secant[$p] = select(0.0, secant[$p] / sqrt(missing_curvature), is_usable);
    //@end
    set_curvature();
    return is_usable;
}

// True if the cost rises more at the trial point than it falls at the accepted one, along the line between them: the
// trial point lies beyond twice the way to the minimum.
fn overshoots_minimum() -> bool {
    var slope = 0.0;
    //@for p 0 PARAMETERS
    slope += step_to_trial_point($pu) * (gradient($pu) + trial_sums[FIRST_SLOPE + $pu]);
    //@end
    return slope < 0.0;
}
