//! Curves whose counts are all 0, which bound a model from above only.

use crate::curves::input::data::ParameterPrior;

/// Returns whether counts that are all 0 can be fitted: a free parameter has a bound or a prior. Otherwise the
/// likelihood may only grow as the model goes to 0, and has no maximum. `lower` and `upper` are empty without bounds.
pub(crate) fn may_all_be_zero(
    lower: &[f64],
    upper: &[f64],
    held: &[bool],
    priors: &[Option<ParameterPrior>],
) -> bool {
    let is_free = |p: usize| !held[p] && (lower.is_empty() || lower[p] < upper[p]);
    let is_bounded = |p: usize| !lower.is_empty() && (lower[p].is_finite() || upper[p].is_finite());
    (0..priors.len()).any(|p| is_free(p) && (is_bounded(p) || priors[p].is_some()))
}
