//! Labels that the spectra of a cluster share.

use super::settings::SharedLabels;
use super::{ModelParameter, SpectralModel};
use crate::error::{Error, Result};
use crate::suggest::hint;

impl SharedLabels {
    /// Fails unless there is a column, and each label is a free parameter with the same bounds and prior for all
    /// spectra, named once.
    pub(super) fn check(&self, parameters: &[ModelParameter]) -> Result<()> {
        if self.column.trim().is_empty() {
            return Err(column_error(
                "name the column that has the same value for the spectra of a cluster",
            ));
        }
        if self.labels.is_empty() {
            return Err(labels_error(
                "name at least one label that the spectra of a cluster share",
            ));
        }
        for (k, label) in self.labels.iter().enumerate() {
            let names = || {
                parameters
                    .iter()
                    .map(|parameter| parameter.solver.name.as_str())
            };
            let Some(parameter) = parameters
                .iter()
                .find(|parameter| parameter.solver.name == *label)
            else {
                return Err(labels_error(&format!(
                    "`{label}` is no free parameter{}",
                    hint(label, names())
                )));
            };
            if self.labels[..k].contains(label) {
                return Err(labels_error(&format!("`{label}` is there twice")));
            }
            let columns = &parameter.columns;
            let of_each_spectrum = [
                ("lower bound", &columns.lower),
                ("upper bound", &columns.upper),
                ("prior", &columns.mean),
                ("prior", &columns.sigma),
            ];
            if let Some((what, Some(column))) = of_each_spectrum
                .into_iter()
                .find(|(_, column)| column.is_some())
            {
                return Err(labels_error(&format!(
                    "`{label}` has the {what} of each spectrum from the column `{column}`, and all spectra of a cluster \
                     have one value of it: give it a number"
                )));
            }
        }
        Ok(())
    }
}

impl SpectralModel {
    /// Returns the labels that the spectra of a cluster share; `None` if each spectrum is fitted by itself.
    #[doc(hidden)]
    pub fn shared(&self) -> Option<&SharedLabels> {
        self.shared.as_ref()
    }

    /// Returns the indices of the parameters that the spectra of a cluster share, in ascending order.
    pub(crate) fn shared_parameters(&self) -> Vec<usize> {
        let is_shared = |parameter: &ModelParameter| {
            let shared = self.shared.as_ref();
            shared.is_some_and(|shared| shared.labels.contains(&parameter.solver.name))
        };
        (0..self.parameters.len())
            .filter(|&p| is_shared(&self.parameters[p]))
            .collect()
    }
}

/// Makes the error that `shared.column` makes no sense.
fn column_error(message: &str) -> Error {
    Error::model_setting("shared.column", format!("shared.column: {message}"))
}

/// Makes the error that `shared.labels` make no sense.
fn labels_error(message: &str) -> Error {
    Error::model_setting("shared.labels", format!("shared.labels: {message}"))
}
