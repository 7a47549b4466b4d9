//! Names of arrays: those of arms, misspelt ones, and those that are not used.

use super::arm::ArrayArm;
use super::source::{ArrayHead, ArraySource, ElementKind};
use crate::error::Result;
use crate::suggest::join_names;

/// Parts of the names of an arm's arrays, after its name and an underscore.
pub(super) const ARM_ARRAYS: [&str; 8] = [
    "wavelength",
    "flux",
    "ivar",
    "sigma",
    "mask",
    "resolution",
    "covariance",
    "medium",
];
/// Names of the arrays that all arms share.
const SHARED_ARRAYS: [&str; 2] = ["id", "medium"];
/// Names that other programs give to these arrays, without separators, in lower case.
const SYNONYMS: [(&str, &[&str]); 7] = [
    (
        "wavelength",
        &[
            "wave", "waves", "wav", "wavelen", "wvl", "wl", "lambda", "lam",
        ],
    ),
    ("ivar", &["invvar", "inversevariance", "weight", "weights"]),
    (
        "sigma",
        &[
            "err",
            "error",
            "errors",
            "fluxerr",
            "fluxerror",
            "std",
            "noise",
            "uncertainty",
        ],
    ),
    (
        "mask",
        &[
            "badmask",
            "maskbad",
            "badpix",
            "badpixel",
            "badpixels",
            "badpixmask",
            "pixmask",
            "pixelmask",
            "bitmask",
            "andmask",
            "ormask",
            "masked",
            "msk",
            "fluxmask",
            "pixelflags",
            "dq",
        ],
    ),
    (
        "medium",
        &[
            "airorvac",
            "airorvacuum",
            "air",
            "vacuum",
            "vac",
            "wavelengthmedium",
            "wavemedium",
        ],
    ),
    (
        "covariance",
        &[
            "cov",
            "covar",
            "covmat",
            "covariancematrix",
            "noisecovariance",
            "fluxcovariance",
        ],
    ),
    ("id", &["ids", "targetid", "targetids"]),
];
/// Minimum number of letters of a name in which one letter may be wrong.
const MIN_FUZZY_LENGTH: usize = 4;
/// Maximum number of letters of an arm's name that is guessed from an array beside `flux`, such as `b` of `b_mask`.
const MAX_GUESSED_ARM_LENGTH: usize = 2;

/// Returns the arms' names in the order of the arrays: `flux` is that of the only, unnamed arm; otherwise every
/// `NAME_flux` is that of an arm, which also has weights and wavelengths.
///
/// Beside a complete arm, `NAME_flux` is an array of another kind (a sky, a model) if it has neither, or if its name
/// begins with that of the complete arm.
pub fn find_arms<'a>(source: &impl ArraySource<'a>) -> Result<Vec<String>> {
    // 1. Collect the candidates.
    let keys = source.keys();
    if keys.iter().any(|key| key == "flux") {
        return Ok(vec![String::new()]);
    }
    let mut names: Vec<String> = keys
        .iter()
        .filter_map(|key| key.strip_suffix("_flux"))
        .map(str::to_string)
        .collect();
    if names.is_empty() {
        return Err(source.missing_error("flux"));
    }
    // 2. Keep those that have weights and wavelengths, or one of both unless they belong to a complete arm.
    let complete_arms: Vec<String> = names
        .iter()
        .filter(|name| has_weights_and_wavelengths(name, &keys) == [true, true])
        .cloned()
        .collect();
    names.retain(|name| match has_weights_and_wavelengths(name, &keys) {
        [true, true] => true,
        [false, false] => complete_arms.is_empty(),
        _ => !complete_arms.iter().any(|arm| {
            name.strip_prefix(arm.as_str())
                .is_some_and(|suffix| suffix.starts_with('_'))
        }),
    });
    Ok(names)
}

/// Returns whether there are weights for an arm, and whether there are wavelengths, by names similar to theirs.
fn has_weights_and_wavelengths(arm: &str, keys: &[String]) -> [bool; 2] {
    let mut has_weights = false;
    let mut has_wavelengths = false;
    for key in keys {
        let suffix = key
            .strip_prefix(arm)
            .and_then(|suffix| suffix.strip_prefix('_'));
        match suffix.and_then(recognise_part) {
            Some("ivar" | "sigma" | "covariance") => has_weights = true,
            Some("wavelength") => has_wavelengths = true,
            _ => {}
        }
    }
    [has_weights, has_wavelengths]
}

/// Fails if an array that popfit does not read has a name similar to that of a missing array that it would read.
pub fn refuse_misspelt<'a>(source: &mut impl ArraySource<'a>, arms: &[String]) -> Result<()> {
    let keys = source.keys();
    let read_names = spectra_array_names(arms);
    let flux_shape: Vec<usize> = match arms.first() {
        Some(arm) => source
            .read_head(&array_name(arm, "flux"))?
            .map(|head| head.shape)
            .unwrap_or_default(),
        None => Vec::new(),
    };
    for key in keys.iter().filter(|key| !read_names.contains(key)) {
        // 1. Recognise the array that may be meant.
        let Some((arm, part)) = recognise_array(key, arms, &keys) else {
            continue;
        };
        // 2. It is no mistake if that array exists for all arms, or if the shape is that of something else.
        let Some(incomplete_arm) = arms
            .iter()
            .filter(|candidate| arm.is_none_or(|arm| arm == *candidate))
            .find(|candidate| !has_part(candidate, part, &keys))
        else {
            continue;
        };
        let head = source.read_head(key).ok().flatten();
        if head.is_some_and(|head| is_other_array(part, key, &head, &flux_shape)) {
            continue;
        }
        // 3. Otherwise suggest the name.
        let suggestion = if part == "id" {
            part.to_string()
        } else {
            array_name(incomplete_arm, part)
        };
        let message = format!(
            "`{key}` is no array that popfit reads; did you mean `{suggestion}`? Rename it or leave it out"
        );
        return Err(source.place().error(message));
    }
    Ok(())
}

/// Returns whether there is an array for this part of an arm, or one that takes its place.
fn has_part(arm: &str, part: &str, keys: &[String]) -> bool {
    let has_array = |part: &str| keys.contains(&array_name(arm, part));
    let has_shared_array = || keys.iter().any(|key| key == part);
    match part {
        "id" => has_shared_array(),
        "ivar" | "sigma" => has_array("ivar") || has_array("sigma"),
        "medium" => has_shared_array() || has_array("medium"),
        part => has_array(part),
    }
}

/// Returns notes that name arrays of the spectra's shape that are not used, and arrays of one value per pixel that seem
/// to be masks.
pub fn note_unused_arrays<'a, R>(
    source: &mut impl ArraySource<'a>,
    arms: &[ArrayArm<R>],
) -> Vec<String> {
    let arm_names: Vec<String> = arms.iter().map(|arm| arm.name.clone()).collect();
    let read_names = spectra_array_names(&arm_names);
    // 1. Sort the arrays that are not read by their shapes.
    let mut unused = Vec::new();
    let mut masks = Vec::new();
    for key in source.keys() {
        if read_names.contains(&key) {
            continue;
        }
        let Some(ArrayHead { shape, kind }) = source.read_head(&key).ok().flatten() else {
            continue;
        };
        let ends = shape.first().copied().zip(shape.last().copied());
        let has_spectra_shape = |arm: &ArrayArm<R>| match shape.len() {
            0 => false,
            1 => arm.length == 1 && shape == [arm.pixels] && arm.pixels > 1,
            _ => ends == Some((arm.length, arm.pixels)),
        };
        // An array of one value per spectrum is a column.
        let has_pixel_shape = |arm: &ArrayArm<R>| shape == [arm.pixels] && arm.pixels != arm.length;
        if arms.iter().any(has_spectra_shape) {
            unused.push(key);
        } else if arms.iter().any(has_pixel_shape)
            && (kind == ElementKind::Bool || is_mask_name(&key))
        {
            masks.push(key);
        }
    }
    // 2. Write one note for each kind.
    let place = source.place();
    let mut notes = Vec::new();
    if !unused.is_empty() {
        let names = join_names("array", &unused);
        notes.push(place.with_file(&format!(
            "arrays of the spectra's shape that are not used: {names}"
        )));
    }
    if !masks.is_empty() {
        let names = join_names("array", &masks);
        notes.push(place.with_file(&format!(
            "arrays of one value per pixel that seem to be masks and are not used: {names}; a mask has the shape \
             (spectra, pixels), such as np.broadcast_to(mask, flux.shape)"
        )));
    }
    notes
}

/// Returns the names of all arrays that are read for these arms, with those that all arms share.
pub fn spectra_array_names(arms: &[String]) -> Vec<String> {
    let arm_arrays = arms
        .iter()
        .flat_map(|arm| ARM_ARRAYS.map(|part| array_name(arm, part)));
    arm_arrays.chain(SHARED_ARRAYS.map(String::from)).collect()
}

/// Returns the name of an arm's array; an arm without a name has no prefix.
pub fn array_name(arm: &str, part: &str) -> String {
    if arm.is_empty() {
        part.to_string()
    } else {
        format!("{arm}_{part}")
    }
}

/// Returns the arm that an array's name seems to contain, if any, and the array of it that seems to be meant; `None`
/// for a name that is similar to none.
fn recognise_array<'a>(
    key: &str,
    arms: &'a [String],
    keys: &[String],
) -> Option<(Option<&'a String>, &'static str)> {
    // 1. A name that begins with an arm's.
    let lower = key.to_lowercase();
    for arm in arms.iter().filter(|arm| !arm.is_empty()) {
        if let Some(suffix) = lower
            .strip_prefix(&arm.to_lowercase())
            .filter(|suffix| suffix.starts_with(is_separator))
        {
            return recognise_part(suffix).map(|part| (Some(arm), part));
        }
    }
    // 2. A name without an arm.
    if let Some(part) = recognise_part(&lower) {
        return Some((None, part));
    }
    // 3. `b_mask` beside `flux`, unless it belongs to a `b_flux`.
    let (arm, suffix) = key.split_once('_')?;
    let part = ARM_ARRAYS.iter().find(|part| **part == suffix)?;
    let is_guessed_arm = arm.len() <= MAX_GUESSED_ARM_LENGTH
        && arms.iter().all(String::is_empty)
        && !keys.contains(&array_name(arm, "flux"));
    is_guessed_arm.then_some((None, part))
}

/// Returns the array that a name means, up to case, separators, a plural or one wrong letter; `None` if it means none.
fn recognise_part(name: &str) -> Option<&'static str> {
    let letters: String = name
        .chars()
        .filter(|c| !is_separator(*c))
        .flat_map(char::to_lowercase)
        .collect();
    let is_similar = |part: &str| {
        letters == part
            || (part.len() >= MIN_FUZZY_LENGTH
                && letters.len() >= MIN_FUZZY_LENGTH
                && strsim::damerau_levenshtein(part, &letters) <= 1)
    };
    let mut parts = ARM_ARRAYS.iter().chain(&SHARED_ARRAYS);
    if let Some(part) = parts.find(|part| is_similar(part)) {
        return Some(part);
    }
    SYNONYMS
        .iter()
        .find(|(_, synonyms)| synonyms.contains(&letters.as_str()))
        .map(|(part, _)| *part)
}

/// Returns whether a character may stand between the words of a name.
fn is_separator(c: char) -> bool {
    !c.is_alphanumeric()
}

/// Returns whether an array's name is that of a mask of some kind.
fn is_mask_name(key: &str) -> bool {
    let lower = key.to_lowercase();
    ["mask", "flag", "bad"]
        .iter()
        .any(|word| lower.contains(word))
}

/// Returns whether an array's shape shows that it is not the part whose name is similar, because it is a column of one
/// value per spectrum, or because it is no single word.
fn is_other_array(part: &str, key: &str, head: &ArrayHead, flux_shape: &[usize]) -> bool {
    let is_column = match flux_shape {
        [length, _] => head.shape == [*length],
        _ => false,
    };
    match part {
        "id" => false,
        "medium" => head.elements() != 1 || (is_column && !key.to_lowercase().contains("medium")),
        _ => is_column && flux_shape.first() != flux_shape.last(),
    }
}

#[cfg(test)]
mod tests {
    use super::recognise_part;

    #[test]
    fn similar_names_are_recognised_as_arrays() {
        for (name, part) in [
            ("MASK", Some("mask")),
            ("masks", Some("mask")),
            ("bad_mask", Some("mask")),
            ("BadPix", Some("mask")),
            ("Medium", Some("medium")),
            ("ID", Some("id")),
            ("IVAR", Some("ivar")),
            ("wave", Some("wavelength")),
            ("wavelenghts", None),
            ("wavelenght", Some("wavelength")),
            ("flux_err", Some("sigma")),
            ("sky", None),
            ("model", None),
            ("telluric", None),
            ("tmask", Some("mask")),
            ("var", None),
            ("cov", Some("covariance")),
            ("covariances", Some("covariance")),
            ("variance", None),
            ("teff", None),
            ("median", None),
        ] {
            assert_eq!(recognise_part(name), part, "{name}");
        }
    }
}
