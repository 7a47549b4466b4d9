//! Names of arrays: which of them make an arm, which are misspelt, and which nobody reads.

use super::arm::Arm;
use super::source::{Head, Kind, Source};
use crate::error::Result;
use crate::suggest::shown_names;

/// Arrays of an arm, after its name and an underscore.
const OF_ARM: [&str; 7] = [
    "wavelength",
    "flux",
    "ivar",
    "sigma",
    "mask",
    "resolution",
    "medium",
];
/// Arrays of all arms.
const OF_FILE: [&str; 2] = ["id", "medium"];
/// Names that other programs give to these arrays, without separators, in lower case.
const SYNONYMS: [(&str, &[&str]); 6] = [
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
    ("id", &["ids", "targetid", "targetids"]),
];
/// Fewest letters of a name in which one may be wrong.
const FUZZY: usize = 4;
/// Most letters of an arm's name that is guessed from an array beside `flux`, such as `b` of `b_mask`.
const SHORT: usize = 2;

/// Returns the arms' names in the order of the arrays: `flux` makes the only, unnamed arm; otherwise every `NAME_flux`
/// is one that has weights and wavelengths, too.
///
/// Beside a complete arm, `NAME_flux` is an array of another kind (a sky, a model) if it has neither, or if its name
/// begins with that of the complete arm.
pub fn arm_names<'a>(source: &impl Source<'a>) -> Result<Vec<String>> {
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
        // a name with `_flux` would be an arm
        return Err(source.missing("flux"));
    }
    let of = |name: &str| {
        let parts = keys
            .iter()
            .filter_map(|key| key.strip_prefix(name)?.strip_prefix('_').map(part));
        let parts: Vec<&str> = parts.flatten().collect();
        let has = |wanted: &[&str]| parts.iter().any(|part| wanted.contains(part));
        [has(&["ivar", "sigma"]), has(&["wavelength"])]
    };
    let complete: Vec<String> = names
        .iter()
        .filter(|name| of(name) == [true, true])
        .cloned()
        .collect();
    names.retain(|name| match of(name) {
        [true, true] => true,
        [false, false] => complete.is_empty(),
        _ => !complete.iter().any(|arm| {
            name.strip_prefix(arm.as_str())
                .is_some_and(|rest| rest.starts_with('_'))
        }),
    });
    Ok(names)
}

/// Fails if an array that popfit does not read has a name like that of one which it would read, and which is missing.
pub fn refuse_misspelt<'a>(source: &mut impl Source<'a>, arms: &[String]) -> Result<()> {
    let keys = source.keys();
    let known = known(arms);
    let lengths: Vec<usize> = match arms.first() {
        Some(arm) => source
            .head(&array(arm, "flux"))?
            .map(|head| head.shape)
            .unwrap_or_default(),
        None => Vec::new(),
    };
    for key in keys.iter().filter(|key| !known.contains(key)) {
        let Some((arm, part)) = split(key, arms, &keys) else {
            continue;
        };
        let is_filled = |arm: &String| match part {
            "id" => keys.iter().any(|key| key == "id"),
            "ivar" | "sigma" => ["ivar", "sigma"]
                .iter()
                .any(|part| keys.contains(&array(arm, part))),
            "medium" => keys
                .iter()
                .any(|key| key == "medium" || *key == array(arm, "medium")),
            part => keys.contains(&array(arm, part)),
        };
        let Some(lacking) = arms
            .iter()
            .filter(|a| arm.is_none_or(|arm| arm == *a))
            .find(|arm| !is_filled(arm))
        else {
            continue;
        };
        let head = source.head(key).ok().flatten();
        if head.is_some_and(|head| is_something_else(part, key, &head, &lengths)) {
            continue;
        }
        let meant = if part == "id" {
            part.to_string()
        } else {
            array(lacking, part)
        };
        let message = format!(
            "`{key}` is no array that popfit reads; did you mean `{meant}`? Rename it or leave it out"
        );
        return Err(source.place().fault(message));
    }
    Ok(())
}

/// Returns notes that name arrays which have the shape of the spectra and are not read, and those of one value per
/// pixel that seem to be masks.
pub fn unused<'a, R>(source: &mut impl Source<'a>, arms: &[Arm<R>]) -> Vec<String> {
    let names: Vec<String> = arms.iter().map(|arm| arm.name.clone()).collect();
    let known = known(&names);
    let (mut unused, mut masks) = (Vec::new(), Vec::new());
    for key in source.keys().into_iter().filter(|key| !known.contains(key)) {
        let Some(Head { shape, kind }) = source.head(&key).ok().flatten() else {
            continue;
        };
        let ends = shape.first().copied().zip(shape.last().copied());
        let is_of = |arm: &Arm<R>| match shape.len() {
            0 => false,
            1 => arm.length == 1 && shape == [arm.pixels] && arm.pixels > 1,
            _ => ends == Some((arm.length, arm.pixels)),
        };
        // an array of one value per spectrum is a column
        let is_row = |arm: &Arm<R>| shape == [arm.pixels] && arm.pixels != arm.length;
        if arms.iter().any(is_of) {
            unused.push(key);
        } else if arms.iter().any(is_row) && (kind == Kind::Bool || is_mask_name(&key)) {
            masks.push(key);
        }
    }
    let place = source.place();
    let unused = (!unused.is_empty()).then(|| {
        let names = shown_names("array", &unused);
        place.with_file(&format!(
            "arrays of the spectra's shape that are not used: {names}"
        ))
    });
    let masks = (!masks.is_empty()).then(|| {
        let names = shown_names("array", &masks);
        place.with_file(&format!(
            "arrays of one value per pixel that seem to be masks and are not used: {names}; a mask has the shape \
             (spectra, pixels), such as np.broadcast_to(mask, flux.shape)"
        ))
    });
    unused.into_iter().chain(masks).collect()
}

/// Returns the names of all arrays that are read of these arms and of all.
pub fn known(arms: &[String]) -> Vec<String> {
    let of_arms = arms
        .iter()
        .flat_map(|arm| OF_ARM.map(|part| array(arm, part)));
    of_arms.chain(OF_FILE.map(String::from)).collect()
}

/// Returns the name of an arm's array; an arm without a name has no prefix.
pub fn array(arm: &str, part: &str) -> String {
    if arm.is_empty() {
        part.to_string()
    } else {
        format!("{arm}_{part}")
    }
}

/// Returns the arm that an array's name seems to have, if any, and which of its arrays it seems to be; `None` for a
/// name that is like none.
fn split<'a>(
    key: &str,
    arms: &'a [String],
    keys: &[String],
) -> Option<(Option<&'a String>, &'static str)> {
    let lower = key.to_lowercase();
    for arm in arms.iter().filter(|arm| !arm.is_empty()) {
        if let Some(rest) = lower
            .strip_prefix(&arm.to_lowercase())
            .filter(|rest| rest.starts_with(is_separator))
        {
            return part(rest).map(|part| (Some(arm), part));
        }
    }
    if let Some(part) = part(&lower) {
        return Some((None, part));
    }
    // `b_mask` beside `flux`, unless there is a `b_flux`, to which it belongs
    let (arm, rest) = key.split_once('_')?;
    let known = OF_ARM.iter().find(|part| **part == rest)?;
    let is_arm = arm.len() <= SHORT
        && arms.iter().all(String::is_empty)
        && !keys.contains(&array(arm, "flux"));
    is_arm.then_some((None, known))
}

/// Returns which array a name means, whatever its case, separators, plural or a wrong letter; `None` if none.
fn part(name: &str) -> Option<&'static str> {
    let plain: String = name
        .chars()
        .filter(|c| !is_separator(*c))
        .flat_map(char::to_lowercase)
        .collect();
    let is_like = |known: &str| {
        let is_near = || strsim::damerau_levenshtein(known, &plain) <= 1 && plain.len() >= FUZZY;
        plain == known || (known.len() >= FUZZY && is_near())
    };
    let by_synonym = || {
        SYNONYMS
            .iter()
            .find(|(_, names)| names.contains(&plain.as_str()))
            .map(|(part, _)| *part)
    };
    OF_ARM
        .iter()
        .chain(&OF_FILE)
        .find(|known| is_like(known))
        .copied()
        .or_else(by_synonym)
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

/// Returns whether the shape of an array shows that it is not the part whose name its own is like: a column of one
/// value per spectrum, or one that is no single word.
fn is_something_else(part: &str, key: &str, head: &Head, flux: &[usize]) -> bool {
    let is_column =
        flux.len() == 2 && head.shape == flux.iter().take(1).copied().collect::<Vec<_>>();
    match part {
        "id" => false,
        "medium" => head.elements() != 1 || (is_column && !key.to_lowercase().contains("medium")),
        _ => is_column && flux.first() != flux.last(),
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn names_that_mean_an_array() {
        for (name, meant) in [
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
            ("teff", None),
            ("median", None),
        ] {
            assert_eq!(part(name), meant, "{name}");
        }
    }
}
