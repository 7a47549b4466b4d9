//! Clusters: spectra of one file with the same value in the column that the model names.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::model::SpectralModel;
use crate::spectra::{Column, ColumnValues, Spectra};

/// The value of a column by which spectra belong to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ClusterKey {
    Text(String),
    Number(i128),
}

/// Returns the clusters of several files: for each the places of its spectra in the batch of all files, in ascending
/// order. Clusters come in the order of their first spectra, file by file, and those of a single spectrum, too. There
/// is none if the model shares no labels.
///
/// # Errors
/// Returns [`Error::ShapeMismatch`] for a file that lacks the column, or has neither texts nor whole numbers in it.
pub fn find_clusters(model: &SpectralModel, files: &[&Spectra]) -> Result<Vec<Vec<usize>>> {
    let mut clusters: Vec<Vec<usize>> = Vec::new();
    let mut first_place = 0;
    for spectra in files {
        let Some(column) = find_cluster_column(model, spectra)? else {
            return Ok(Vec::new());
        };
        let mut cluster_of_key: HashMap<ClusterKey, usize> = HashMap::new();
        for row in 0..spectra.len() {
            let Some(key) = read_key(column, row, spectra)? else {
                continue;
            };
            let cluster = *cluster_of_key.entry(key).or_insert_with(|| {
                clusters.push(Vec::new());
                clusters.len() - 1
            });
            clusters[cluster].push(first_place + row);
        }
        first_place += spectra.len();
    }
    Ok(clusters)
}

/// Finds the column of clusters in a file's table; `None` if the model shares no labels.
///
/// # Errors
/// Returns [`Error::ShapeMismatch`] for a file that lacks the column, or in which it is of booleans.
pub fn find_cluster_column<'s>(
    model: &SpectralModel,
    spectra: &'s Spectra,
) -> Result<Option<&'s Column>> {
    let Some(shared) = model.shared() else {
        return Ok(None);
    };
    let name = &shared.column;
    let message = match spectra.column(name) {
        Some(column) if !matches!(column.values, ColumnValues::Bool(_)) => return Ok(Some(column)),
        Some(_) => {
            format!("the column `{name}` of `shared` is of booleans; give texts or whole numbers")
        }
        None => format!(
            "no column `{name}`, by which spectra share labels (`shared.column`), of one value per spectrum"
        ),
    };
    Err(Error::mismatch(spectra.name(), message).naming(name))
}

/// Returns the key of a spectrum's cluster; `None` for an empty text, a negative number or NaN.
fn read_key(column: &Column, row: usize, spectra: &Spectra) -> Result<Option<ClusterKey>> {
    let number = match &column.values {
        ColumnValues::Text(texts) => {
            let text = texts[row].trim();
            return Ok((!text.is_empty()).then(|| ClusterKey::Text(text.into())));
        }
        ColumnValues::I64(numbers) => i128::from(numbers[row]),
        ColumnValues::U64(numbers) => i128::from(numbers[row]),
        numbers => {
            let number = numbers.number(row).unwrap_or(f64::NAN);
            if number.is_nan() {
                return Ok(None);
            }
            if number.fract() != 0.0 {
                let message = format!(
                    "the column `{}` of `shared` has {number} in row {row}; give texts or whole numbers",
                    column.name
                );
                return Err(Error::mismatch(spectra.name(), message).naming(&*column.name));
            }
            number as i128
        }
    };
    Ok((number >= 0).then_some(ClusterKey::Number(number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Emulator;

    fn spectra(values: impl Into<ColumnValues>) -> Spectra<'static> {
        let column = Column {
            table: "".into(),
            name: "CLUSTER".into(),
            unit: "".into(),
            values: values.into(),
        };
        let count = column.values.len();
        let flux = vec![1.0; 2 * count];
        let mut spectra =
            Spectra::from_arrays(vec![5000.0, 5001.0], flux.clone(), flux, None, None).unwrap();
        spectra.columns.push(column);
        spectra
    }

    fn model() -> SpectralModel {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/emulator.safetensors");
        SpectralModel::builder()
            .arm("", Emulator::open(path).unwrap())
            .shared("CLUSTER", ["feh"])
            .build()
            .unwrap()
    }

    #[test]
    fn spectra_of_one_value_in_one_file_are_a_cluster() {
        let model = model();
        let texts = spectra(
            ["M67", "", "M71 ", "M67", " ", "M71"]
                .map(String::from)
                .to_vec(),
        );
        let numbers = spectra(vec![7i64, -1, 0, 7]);
        let floats = spectra(vec![7.0, f64::NAN, -1.0, 7.0]);
        let clusters = find_clusters(&model, &[&texts, &numbers, &floats]).unwrap();
        assert_eq!(
            clusters,
            [vec![0, 3], vec![2, 5], vec![6, 9], vec![8], vec![10, 13]]
        );
    }

    #[test]
    fn unusable_columns_are_errors_that_name_them() {
        let model = model();
        let message_of =
            |spectra: &Spectra| find_clusters(&model, &[spectra]).unwrap_err().to_string();
        assert!(message_of(&spectra(vec![0.5])).contains("`CLUSTER` of `shared` has 0.5 in row 0"));
        assert!(message_of(&spectra(vec![true])).contains("is of booleans"));
        let mut without = spectra(vec![1i64]);
        without.columns.clear();
        without.file = "stars.npz".into();
        let message = message_of(&without);
        assert!(
            message.contains("stars.npz") && message.contains("no column `CLUSTER`"),
            "{message}"
        );
    }
}
