//! Clusters: spectra of one file with the same value in the column that the model names.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::model::SpectralModel;
use crate::spectra::{Column, ColumnValues, Spectra};
use crate::suggest::hint;

/// Smallest whole number that is the same float as its successor, 2⁵³.
const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

/// The value of a column by which spectra belong to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClusterKey {
    Text(String),
    Number(i128),
}

impl std::fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClusterKey::Text(text) => write!(f, "{text:?}"),
            ClusterKey::Number(number) => number.fmt(f),
        }
    }
}

/// The spectra of one file that belong to a cluster.
#[derive(Debug)]
pub struct FileCluster {
    pub key: ClusterKey,
    /// Name of the file; empty for spectra in memory.
    pub file: Arc<str>,
    /// Places of the spectra in the batch of all files, in ascending order.
    pub places: Vec<usize>,
}

/// The files of a run's clusters, which tell whether the spectra of a cluster are in several files.
#[derive(Debug, Default)]
pub struct ClusterFiles {
    file_of_key: HashMap<ClusterKey, Arc<str>>,
    has_warned: bool,
}

impl ClusterFiles {
    /// Adds clusters. Returns a warning for the first one of which another file has spectra, too.
    pub fn add(&mut self, clusters: &[FileCluster]) -> Option<String> {
        let mut warning = None;
        for FileCluster { key, file, .. } in clusters {
            let earlier_file = self
                .file_of_key
                .entry(key.clone())
                .or_insert_with(|| file.clone());
            if earlier_file != file && !self.has_warned {
                self.has_warned = true;
                warning = Some(format!(
                    "cluster {key} of `shared` has spectra in {earlier_file} and in {file}, perhaps not as the only one: \
                     spectra of different files share no labels. Put the spectra of a cluster into one file"
                ));
            }
        }
        warning
    }
}

/// Returns the clusters of several files, in the order of their first spectra, file by file, and those of a single
/// spectrum, too. There is none if the model shares no labels.
///
/// # Errors
/// Returns [`Error::ShapeMismatch`] for a file that lacks the column, or has neither texts nor whole numbers in it.
pub fn find_clusters(model: &SpectralModel, files: &[&Spectra]) -> Result<Vec<FileCluster>> {
    let mut clusters: Vec<FileCluster> = Vec::new();
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
            let cluster = *cluster_of_key.entry(key.clone()).or_insert_with(|| {
                clusters.push(FileCluster {
                    key,
                    file: spectra.file.clone(),
                    places: Vec::new(),
                });
                clusters.len() - 1
            });
            clusters[cluster].places.push(first_place + row);
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
        None => {
            let columns = spectra.columns.iter().map(|column| &*column.name);
            format!(
                "no column `{name}` of one value per spectrum, by which spectra share labels (`shared.column`){}",
                hint(name, columns)
            )
        }
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
            if number.is_nan() || number < 0.0 {
                return Ok(None);
            }
            // Beyond this limit different whole numbers are one float.
            let is_exact = number.fract() == 0.0 && number < MAX_EXACT_FLOAT;
            if !is_exact {
                let message = format!(
                    "the column `{}` of `shared` has {number} in row {row}, as a float; give texts or whole numbers, those \
                     from 2^53 on as integers",
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
        let floats = spectra(vec![7.0, f64::NAN, -0.5, 7.0]);
        let clusters = find_clusters(&model, &[&texts, &numbers, &floats]).unwrap();
        let places: Vec<&[usize]> = clusters.iter().map(|cluster| &cluster.places[..]).collect();
        assert_eq!(places, [&[0, 3][..], &[2, 5], &[6, 9], &[8], &[10, 13]]);
    }

    #[test]
    fn a_cluster_in_two_files_is_warned_of_once() {
        let model = model();
        let mut files = [1i64, 2, 1].map(|number| spectra(vec![number, 5]));
        for (k, spectra) in files.iter_mut().enumerate() {
            spectra.file = format!("{k}.npz").into();
        }
        let mut cluster_files = ClusterFiles::default();
        let warnings = [0, 1, 1, 2, 0].map(|k| {
            let clusters = find_clusters(&model, &[&files[k]]).unwrap();
            cluster_files.add(&clusters)
        });
        let is_given = warnings.each_ref().map(|warning| warning.is_some());
        assert_eq!(is_given, [false, true, false, false, false]);
        let warning = warnings[1].clone().unwrap();
        assert!(
            warning.contains("cluster 5 of `shared` has spectra in 0.npz and in 1.npz"),
            "{warning}"
        );
    }

    #[test]
    fn unusable_columns_are_errors_that_name_them() {
        let model = model();
        let message_of =
            |spectra: &Spectra| find_clusters(&model, &[spectra]).unwrap_err().to_string();
        assert!(message_of(&spectra(vec![0.5])).contains("`CLUSTER` of `shared` has 0.5 in row 0"));
        assert!(message_of(&spectra(vec![2f64.powi(53)])).contains("from 2^53 on as integers"));
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
