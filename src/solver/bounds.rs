//! Box constraints.

/// Lower and upper bounds of the parameters of one fit, (P) each. A parameter with equal bounds is held.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    pub lower: &'a [f64],
    pub upper: &'a [f64],
}
