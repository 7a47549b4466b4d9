//! Selection of the spectra of a survey's files that are fitted.

use std::path::{Path, PathBuf};

use popfit::low_level::read_text;
use popfit::spectra::Selection;
use popfit::{Error, SpectralModel};

use super::Failure;
use super::fit_files::OptionNames;

/// Maximum length of a list of ids in bytes.
const MAX_LIST_BYTES: u64 = 1 << 30;

#[derive(clap::Args, Debug)]
pub struct SelectionOptions {
    /// Only these TARGETIDs (DESI): a list, or @FILE with one or more a line
    #[arg(
        long,
        help_heading = "Selection",
        value_name = "N,N,...",
        requires = "spectra"
    )]
    target_id: Option<String>,
    /// Only fibres of this OBJTYPE (DESI), such as TGT
    #[arg(
        long,
        help_heading = "Selection",
        value_name = "TYPE",
        requires = "spectra"
    )]
    objtype: Option<String>,
    /// Also fibres with a bad FIBERSTATUS (DESI): bits other than 3, a restricted range, and 20, many bad columns
    #[arg(long, help_heading = "Selection", requires = "spectra")]
    any_fiberstatus: bool,
    /// Only spectra whose best arm has at least this median signal-to-noise ratio a pixel (DESI)
    #[arg(
        long,
        help_heading = "Selection",
        value_name = "X",
        requires = "spectra"
    )]
    min_sn: Option<f64>,
    /// Only these arms, of the files and of the model
    #[arg(
        long,
        help_heading = "Selection",
        value_name = "NAME,...",
        value_delimiter = ','
    )]
    pub arms: Option<Vec<String>>,
}

impl SelectionOptions {
    /// Returns the path of the file of ids, if `--target-id` is given as `@FILE`.
    pub fn list(&self) -> Option<PathBuf> {
        self.target_id
            .as_deref()?
            .strip_prefix('@')
            .map(PathBuf::from)
    }

    /// Returns which spectra the options select, and how the model has their masks and exposures read; reads the file
    /// of `--target-id @FILE`, and fails for bad values.
    pub fn of_model(&self, model: &SpectralModel) -> Result<Selection, Failure> {
        let selection = self.selection()?;
        check(&selection, OptionNames::Flags)?;
        Ok(model.complete_selection(selection))
    }

    /// Returns which spectra and arms the options select; reads the file of `--target-id @FILE`.
    pub fn selection(&self) -> Result<Selection, Failure> {
        Ok(Selection {
            target_ids: self.target_id.as_deref().map(target_ids).transpose()?,
            objtype: self.objtype.clone(),
            good_fibres: !self.any_fiberstatus,
            min_signal_to_noise: self.min_sn,
            arms: self.arms.clone(),
            ..Selection::default()
        })
    }
}

/// Fails if a value of the selection makes no sense.
pub fn check(selection: &Selection, names: OptionNames) -> popfit::Result<()> {
    match selection.min_signal_to_noise {
        Some(least) if !least.is_finite() => {
            let name = match names {
                OptionNames::Fields => "`min_signal_to_noise`",
                OptionNames::Flags => "--min-sn",
            };
            Err(Error::Usage(format!("{name} must be finite")))
        }
        _ => Ok(()),
    }
}

/// Fails if target ids were asked for but `selected`, the number of spectra found, is 0. It is more likely a mistake
/// than a wish for an empty table.
pub fn refuse_empty(selection: &Selection, selected: u64) -> popfit::Result<()> {
    match &selection.target_ids {
        Some(ids) if selected == 0 => Err(Error::NothingSelected { wanted: ids.len() }),
        _ => Ok(()),
    }
}

/// Parses the value of `--target-id`: integers, or `@FILE` with a file of them, in which `#` begins a comment.
fn target_ids(argument: &str) -> Result<Vec<i64>, Failure> {
    let text = match argument.strip_prefix('@') {
        Some(path) => read_text(Path::new(path), MAX_LIST_BYTES, "not a list of ids (text)")?,
        None => argument.to_string(),
    };
    // comments reach to the end of their line
    let text: String = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").to_owned() + "\n")
        .collect();
    let words = text
        .split(|c: char| c == ',' || c.is_whitespace())
        .filter(|word| !word.is_empty());
    let one = |word: &str| {
        word.parse()
            .map_err(|_| Failure::usage(format!("--target-id: {word:?} is no integer")))
    };
    words.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_files_of_targets() {
        assert_eq!(
            target_ids("39627652591523841,-2").ok(),
            Some(vec![39_627_652_591_523_841, -2])
        );
        assert!(target_ids("1.5").is_err());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids");
        std::fs::write(&path, "1 2 # two\n3,4\n").unwrap();
        assert_eq!(
            target_ids(&format!("@{}", path.display())).ok(),
            Some(vec![1, 2, 3, 4])
        );
        assert!(target_ids("@missing").is_err());
    }
}
