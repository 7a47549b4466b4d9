//! Curves whose data stay on a device from fit to fit.

use crate::control::Control;
use crate::curves::input::data::{Curves, Starts};
use crate::curves::watch::Watch;
use crate::curves::{CurveColumns, CurveFitter, CurveRun};
use crate::error::Result;
use crate::solver::small::UploadedFits;

/// Curves that have been sent to a device, with the settings of the fitter that did so
/// ([`CurveFitter::upload`]).
#[derive(Debug)]
pub struct CurvesOnDevice<'a> {
    run: CurveRun,
    control: Control,
    curves: Curves<'a>,
    /// `None` where the host has the curves alone.
    uploaded: Option<Box<dyn UploadedFits>>,
}

/// Results of [`CurvesOnDevice::fit`], which lie on the device until they are read.
#[derive(Debug)]
pub struct ColumnsOnDevice<'f, 'a> {
    fitted: &'f mut CurvesOnDevice<'a>,
}

impl CurveFitter {
    /// Sends curves to the device, where they stay: for fits of the same data from several starts, and to fill the
    /// device's memory while it has other work. Results are those of [`fit_columns`](Self::fit_columns), to the bit.
    /// The curves themselves are kept, too, or borrowed: what f32 does not bring to an end the host fits.
    ///
    /// Only GPUs have memory of their own, and there only the curves stay whose fits a GPU makes whole: of a formula of
    /// at most 8 parameters at up to 128 points, by least squares without priors, from one start, without ties and
    /// without covariances of y, and not to be [`exact`](Self::exact). Nor do they stay where the device has no room
    /// for them, or fails. [`is_on_device`](CurvesOnDevice::is_on_device) tells. Others are fitted when their results
    /// are read, as `fit_columns` fits them. [`control`](Self::control) holds for what the host fits then: a device is
    /// not interrupted.
    ///
    /// ```
    /// use popfit::{CurveFitter, Curves, Device, Formula};
    ///
    /// let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)")?, Device::cpu());
    /// let curves = Curves::on_common_grid(vec![0.0, 1.0, 2.0], vec![3.0, 1.5, 0.75], vec![2.0, 1.0]);
    /// let mut uploaded = fitter.upload(curves)?;
    /// let columns = uploaded.fit()?.read()?;
    /// assert!((columns.parameters[1] - 2f64.ln()).abs() < 1e-6);
    /// uploaded.set_starts(vec![4.0, 0.3])?;
    /// assert!((uploaded.fit()?.read()?.parameters[1] - 2f64.ln()).abs() < 1e-6);
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`fit`](Self::fit) for settings and arrays.
    pub fn upload<'a>(&self, curves: Curves<'a>) -> Result<CurvesOnDevice<'a>> {
        let run = self.make_run()?;
        let curves = curves.order_starts(&run)?;
        let uploaded = ignore_device_failure(run.upload(&curves))?;
        Ok(CurvesOnDevice {
            run,
            control: self.control.clone(),
            curves,
            uploaded,
        })
    }
}

impl<'a> CurvesOnDevice<'a> {
    /// Returns whether the curves lie in the memory of a device; if not, the host has them alone.
    pub fn is_on_device(&self) -> bool {
        self.uploaded.is_some()
    }

    /// Replaces the starts of the curves, (curves, parameters) or (parameters), or by name. Of their data nothing is
    /// sent again.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) if there are not as many starts as curves, which keep
    /// their starts then.
    pub fn set_starts(&mut self, starts: impl Into<Starts<'a>>) -> Result<()> {
        let CurvesOnDevice {
            run,
            curves,
            uploaded,
            ..
        } = self;
        let shape_of = |curves: &Curves| curves.shape(&run.model);
        // One row of starts does not say how many curves there are, so that the number of points must.
        curves.points = Some(shape_of(curves)?.1);
        let starts = starts.into().ordered(run)?.into();
        let previous_starts = std::mem::replace(&mut curves.starts, starts);
        if let Err(mismatch) = shape_of(curves) {
            curves.starts = previous_starts;
            return Err(mismatch);
        }
        *uploaded = ignore_device_failure(run.restart(curves, uploaded.take()))?;
        Ok(())
    }

    /// Fits all curves from their starts, and waits until the device has done so. The results stay there. If the device
    /// fails, the curves are fitted when results are read.
    ///
    /// # Errors
    /// None at present: what a device cannot do is said when its results are read.
    pub fn fit(&mut self) -> Result<ColumnsOnDevice<'_, 'a>> {
        if let Some(mut uploaded) = self.uploaded.take() {
            self.uploaded = ignore_device_failure(uploaded.fit().map(|()| Some(uploaded)))?;
        }
        Ok(ColumnsOnDevice { fitted: self })
    }
}

impl ColumnsOnDevice<'_, '_> {
    /// Copies the results to the host, and fits there what f32 has not brought to an end.
    ///
    /// # Errors
    /// The errors of [`CurveFitter::fit`]. Where a device has failed, the curves are fitted again, as
    /// [`cpu_fallback`](CurveFitter::cpu_fallback) says.
    pub fn read(&mut self) -> Result<CurveColumns> {
        let CurvesOnDevice {
            run,
            control,
            curves,
            uploaded,
        } = &mut *self.fitted;
        let (count, _) = curves.shape(&run.model)?;
        let watch = Watch::new(Some(control), count);
        let mut columns = CurveColumns::default();
        control.scope(|| {
            let mut fitted = uploaded.take();
            if fitted.is_none() {
                return run.fit_columns(curves, &mut columns, &watch);
            }
            // The first attempt reads the results, and after a failure of the device others fit again.
            run.retry_on_devices(&watch, |run| match fitted.take() {
                Some(mut fitted) => {
                    run.read_columns(curves, &mut *fitted, &mut columns, &watch)?;
                    *uploaded = Some(fitted);
                    Ok(())
                }
                None => run.fit_columns_once(curves, &mut columns, &watch),
            })
        })??;
        Ok(columns)
    }
}

/// Returns the fits on a device, or `None` if the device has failed: the host has the curves, too, and no result is
/// lost.
fn ignore_device_failure(
    uploaded: Result<Option<Box<dyn UploadedFits>>>,
) -> Result<Option<Box<dyn UploadedFits>>> {
    match uploaded {
        Err(failure) if failure.is_of_device() => Ok(None),
        other => other,
    }
}
