//! Models in users' WGSL.

use std::sync::Arc;

use super::{CurveModel, Wgsl, check_names, own_names};
use crate::error::{Error, Result};
use crate::gpu::user::{ModelShape, inspect_model, validate_model};

/// Source of differences, for models without derivatives.
const DIFFERENCES_WGSL: &str = include_str!("differences.wgsl");

impl CurveModel {
    /// Makes a curve model of a user's WGSL source, for GPUs; fails unless it has a valid function `model`. `source`
    /// defines, for D predictors and P parameters,
    ///
    /// ```wgsl
    /// fn model(p: array<f32, P>, x: array<f32, D>) -> f32
    /// fn derivative(p: array<f32, P>, x: array<f32, D>) -> array<f32, P>
    /// ```
    ///
    /// the value at one point and, optionally, its derivatives by the parameters (P and D as numbers; one predictor may
    /// be `x: f32`). Without `derivative` differences are taken, which in f32 leaves about three digits of a
    /// derivative. The source may have other functions, constants and `var<private>`, and call popfit's functions where
    /// WGSL's own are inaccurate (`log` is wrong by 1e-4 near 1 on some drivers): `expf logf powf sinf cosf tanf asinf
    /// acosf atanf atan2f sinhf coshf tanhf asinhf acoshf atanhf expm1f log1pf log10f log2f cbrtf erff erfcf gammaf
    /// lgammaf faddeeva_re faddeeva_im hypotf minf maxf is_finite nan_like`. Where the model is not defined it returns
    /// `nan_like(0.0)`.
    ///
    /// Loops without a bound are allowed. A GPU that takes seconds for them is lost. Software adapters end all loops of
    /// a point after 65,535 turns and report no error, so that their results are wrong. A twin in Rust
    /// ([`with_rust`](Self::with_rust)) reveals this.
    ///
    /// ```
    /// use popfit::{Closure, CurveModel};
    ///
    /// let decay = CurveModel::wgsl(&["x"], &["a", "k"], "fn model(p: array<f32, 2>, x: f32) -> f32 {
    ///     return p[0] * expf(-p[1] * x);
    /// }")?;
    /// let twin = Closure::new(&["x"], &["a", "k"], |x, p, y| {
    ///     y.iter_mut().zip(x).for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp());
    /// })?;
    /// let everywhere = decay.with_rust(twin)?;
    /// # let wrong = CurveModel::wgsl(&["x"], &["a"], "fn model(p: array<f32, 1>, x: f32) -> f32 { return q; }");
    /// # assert!(matches!(wrong, Err(popfit::Error::Wgsl { line: 1, column: 52, .. })), "{wrong:?}");
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Wgsl`] with the place of a mistake in `source`: code that naga does not accept, another
    /// signature, one of popfit's names, a buffer, or an entry point. Returns [`Error::Model`] if the source is too
    /// long, and [`Error::Usage`] if there is no predictor or no parameter, or if a name is empty or given twice.
    pub fn wgsl(predictors: &[&str], parameters: &[&str], source: &str) -> Result<CurveModel> {
        let predictors = own_names(predictors);
        let parameters = own_names(parameters);
        check_names(&predictors, &parameters)?;
        let shape = ModelShape {
            predictors: predictors.len(),
            parameters: parameters.len(),
        };
        let offer = inspect_model(source, shape)?;
        let complete_with = |slopes| complete_source(source, shape, offer.scalar, slopes);
        let differences = complete_with(Some(Slopes::Differences))?;
        let linearisation = if offer.derivative {
            complete_with(Some(Slopes::Own))?
        } else {
            differences.clone()
        };
        let wgsl = Wgsl {
            value: complete_with(None)?,
            linearisation,
            differences,
            table: Arc::default(),
        };
        Ok(CurveModel {
            name: "model in WGSL".into(),
            predictors: predictors.into(),
            parameters: parameters.into(),
            rust: None,
            wgsl: Some(Arc::new(wgsl)),
            formula: None,
            differences: false,
            twin_agreement: None,
            is_cost: false,
        })
    }

    /// Adds the same model in Rust, so that one in WGSL also runs on the CPU, and its fits are refined in f64. The
    /// first fit on a GPU compares both at its first point, and returns [`Error::Model`] if they differ by more than
    /// the precision of f32. It compares neither other points nor derivatives;
    /// [`check_jacobian`](crate::CurveFitter::check_jacobian) does.
    ///
    /// # Errors
    /// Returns [`Error::Model`] if the names of the twin's predictors or parameters differ.
    pub fn with_rust(self, twin: impl Into<CurveModel>) -> Result<CurveModel> {
        let twin = twin.into();
        if twin.parameters != self.parameters || twin.predictors != self.predictors {
            let describe_names =
                |model: &CurveModel| format!("{:?} of {:?}", model.parameters, model.predictors);
            let message = format!(
                "the twin has {}, not {}",
                describe_names(&twin),
                describe_names(&self)
            );
            return Err(Error::model_setting("twin", message));
        }
        Ok(CurveModel {
            rust: twin.rust,
            differences: twin.differences,
            twin_agreement: Some(Arc::default()),
            ..self
        })
    }
}

/// Source of the derivatives.
#[derive(Clone, Copy, PartialEq)]
enum Slopes {
    /// The user's `derivative`.
    Own,
    Differences,
}

/// Appends to the user's WGSL the function `fill` that the custom kernel calls; fails if the result is invalid.
fn complete_source(
    source: &str,
    shape: ModelShape,
    scalar: bool,
    slopes: Option<Slopes>,
) -> Result<String> {
    let fill_function = write_fill(shape, scalar, slopes);
    let rows = if slopes.is_some() {
        1 + shape.parameters
    } else {
        1
    };
    validate_model(source, &fill_function, rows, shape)?;
    Ok(format!("{source}\n{fill_function}"))
}

/// Returns the WGSL function `fill` that the custom kernel calls, which calls the user's functions; without `slopes`
/// for the value alone.
fn write_fill(shape: ModelShape, scalar: bool, slopes: Option<Slopes>) -> String {
    let ModelShape {
        predictors,
        parameters,
    } = shape;
    // 1. The kernel passes a number of one predictor, which the user's function may take as an array.
    let kernel_type = if predictors == 1 {
        "f32".to_owned()
    } else {
        format!("array<f32, {predictors}>")
    };
    let (user_type, point) = match (predictors, scalar) {
        (1, false) => ("array<f32, 1>".to_owned(), "array<f32, 1>(x)"),
        _ => (kernel_type.clone(), "x"),
    };
    // 2. Derivatives are the user's or differences.
    let rows = if slopes.is_some() { 1 + parameters } else { 1 };
    let derivatives = match slopes {
        None => String::new(),
        Some(Slopes::Own) => format!(
            "    var slopes = derivative(*u, {point});
    for (var k = 0u; k < {parameters}u; k++) {{
        (*out)[1u + k] = slopes[k];
    }}\n"
        ),
        Some(Slopes::Differences) => format!(
            "    for (var k = 0u; k < {parameters}u; k++) {{
        (*out)[1u + k] = popfit_slope(u, k, {point}, (*out)[0]);
    }}\n"
        ),
    };
    let difference_functions = if slopes == Some(Slopes::Differences) {
        DIFFERENCES_WGSL
    } else {
        ""
    };
    format!(
        "alias PopfitPoint = {user_type};\n{difference_functions}
fn fill(x: {kernel_type}, u: ptr<function, array<f32, {parameters}>>, out: ptr<function, array<f32, {rows}>>) {{
    (*out)[0] = model(*u, {point});
{derivatives}}}\n"
    )
}
