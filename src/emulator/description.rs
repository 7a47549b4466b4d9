//! The metadata `popfit` of an emulator file: a JSON object that describes the network of the tensors.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use serde_json::{Map, Value, json};

use super::{Activation, Emulator, Label, Transform, unique};
use crate::suggest::{find_nearest, hint};

/// Version of the format.
const FORMAT_VERSION: u64 = 1;

/// The parsed metadata.
pub(super) struct Description {
    pub activation: Activation,
    /// The activation is an assumption.
    pub activation_is_assumed: bool,
    pub output: Activation,
    pub labels: Vec<Label>,
    /// Labels of each hull.
    pub hulls: Vec<Vec<usize>>,
    /// SHA-256 of the file from which the network was read before it was serialised, hexadecimal.
    pub hash: Option<String>,
}

impl Description {
    /// Parses the JSON description of a network in popfit's file: activation, output, labels and hull axes; fails on
    /// another version. Unknown keys are ignored, as notes.
    pub fn parse(text: &str) -> Result<Description, String> {
        unique::check_unique_keys(text.as_bytes())
            .map_err(|error| format!("is no valid JSON: {error}"))?;
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("is no valid JSON: {error}"))?;
        let object = value
            .as_object()
            .ok_or_else(|| format!("must be a JSON object, not {}", show_value(&value)))?;
        let top = JsonFields {
            path: String::new(),
            object,
        };
        // 1. Check the version and the medium.
        let version = top.read("version", "an integer", Value::as_u64)?;
        if version != FORMAT_VERSION {
            return Err(format!(
                "`version` is {version}, but this popfit reads version {FORMAT_VERSION} of the emulator format; \
                 write the file again, or use a newer popfit"
            ));
        }
        if top
            .get("medium")
            .is_some_and(|medium| medium != "vacuum" && !medium.is_null())
        {
            return Err(
                "`medium` must be \"vacuum\": convert the wavelengths of the network to vacuum"
                    .to_string(),
            );
        }
        // 2. Read the network's description.
        Ok(Description {
            activation: top.read_choice("activation", Activation::NAMES)?,
            activation_is_assumed: match top.get("activation_assumed") {
                Some(_) => top.read("activation_assumed", "true or false", Value::as_bool)?,
                None => false,
            },
            output: read_output(&top)?,
            labels: read_labels(&top)?,
            hulls: read_hulls(&top)?,
            hash: read_hash(&top)?,
        })
    }
}

/// Returns a network's labels, activations and hulls, and its hash if one is to be kept, as JSON for the metadata of
/// its file.
pub(super) fn serialise(emulator: &Emulator, hash: Option<&str>) -> String {
    // 1. Describe the network.
    let mut labels = Vec::with_capacity(emulator.labels.len());
    for label in &emulator.labels {
        labels.push(json!({
            "name": label.name,
            "unit": label.unit,
            "transform": label.transform.name(),
            "mean": label.mean,
            "std": label.std,
            "min": label.min,
            "max": label.max,
        }));
    }
    let mut object = json!({
        "version": FORMAT_VERSION,
        "activation": emulator.activation.name(),
        "output": emulator.output.name(),
        "medium": "vacuum",
        "labels": labels,
        "hull": emulator.hulls.iter().map(|hull| &hull.axes).collect::<Vec<_>>(),
    });
    // 2. Add optional keys.
    let Some(fields) = object.as_object_mut() else {
        return String::new();
    };
    if let Activation::Exp { clip } = emulator.output {
        fields.insert("clip".to_string(), json!(clip));
    }
    if emulator.activation_is_assumed {
        fields.insert("activation_assumed".to_string(), json!(true));
    }
    if let Some(hash) = hash {
        fields.insert("source_sha256".to_string(), json!(hash));
    }
    object.to_string()
}

/// Reads `output`, the activation of the last layer: the identity, or the exponential with `clip` or its default.
fn read_output(top: &JsonFields<'_>) -> Result<Activation, String> {
    let clip = match top.get("clip") {
        Some(_) => top.read("clip", "a positive number", |value| {
            value.as_f64().filter(|clip| *clip > 0.0)
        })?,
        None => Activation::DEFAULT_CLIP,
    };
    top.read_choice(
        "output",
        &[
            ("identity", Activation::Identity),
            ("exp", Activation::Exp { clip }),
        ],
    )
}

/// Reads the list `labels`: name, unit, scaling and training range of each network input.
fn read_labels(top: &JsonFields<'_>) -> Result<Vec<Label>, String> {
    let expected = "a list with one object per input of the network";
    let items = top.read("labels", expected, Value::as_array)?;
    items
        .iter()
        .enumerate()
        .map(|(k, item)| read_label(format!("labels[{k}]"), item))
        .collect()
}

/// Reads one label's name, unit, transform, mean, std, min and max from a JSON object at `path`, which messages name.
fn read_label(path: String, item: &Value) -> Result<Label, String> {
    let keys = "name, transform, mean, std, min and max";
    let object = item.as_object().ok_or_else(|| {
        format!(
            "`{path}` must be an object with the keys {keys}, not {}",
            show_value(item)
        )
    })?;
    let fields = &JsonFields { path, object };
    let unit = match fields.get("unit") {
        Some(_) => fields.read("unit", "a string", Value::as_str)?,
        None => "",
    };
    Ok(Label {
        name: fields.read("name", "a string", Value::as_str)?.to_string(),
        unit: unit.to_string(),
        transform: fields.read_choice("transform", Transform::NAMES)?,
        mean: fields.read_number("mean")?,
        std: fields.read_number("std")?,
        min: fields.read_number("min")?,
        max: fields.read_number("max")?,
    })
}

/// Reads the label indices of each hull, counted from 0; without the key there are none.
fn read_hulls(top: &JsonFields<'_>) -> Result<Vec<Vec<usize>>, String> {
    if top.get("hull").is_none() {
        return Ok(Vec::new());
    }
    top.read(
        "hull",
        "a list of lists of label indices, from 0",
        |hulls| hulls.as_array()?.iter().map(parse_axes).collect(),
    )
}

/// Returns the label indices in a JSON list; `None` if it is another value.
fn parse_axes(axes: &Value) -> Option<Vec<usize>> {
    axes.as_array()?
        .iter()
        .map(|axis| axis.as_u64().and_then(|axis| usize::try_from(axis).ok()))
        .collect()
}

/// Reads `source_sha256`, the hash of the file from which the network came; `None` without the key.
fn read_hash(top: &JsonFields<'_>) -> Result<Option<String>, String> {
    if top.get("source_sha256").is_none() {
        return Ok(None);
    }
    let is_hash =
        |text: &&str| text.len() == 64 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    let hash = top.read("source_sha256", "64 hexadecimal digits", |value| {
        value.as_str().filter(is_hash)
    })?;
    Ok(Some(hash.to_string()))
}

/// An object of the metadata, read key by key. Every message names the key and the expected value.
struct JsonFields<'a> {
    /// Full name of the object, empty at the top.
    path: String,
    object: &'a Map<String, Value>,
}

impl<'a> JsonFields<'a> {
    /// Returns the value of a key; `None` if it is absent.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key)
    }

    /// Returns the full name of a key, for messages: `path.key`, or the key alone at the top.
    fn full_name(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_string()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Reads a required key's value with `convert`; the error says that it is missing, or that it must be `expected`.
    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<T, String> {
        let full_name = self.full_name(key);
        let Some(value) = self.get(key) else {
            let similar_key = find_nearest(key, self.object.keys().map(String::as_str));
            let hint = similar_key
                .map(|similar| format!("; there is `{similar}`"))
                .unwrap_or_default();
            return Err(format!(
                "`{full_name}` is missing: expected {expected}{hint}"
            ));
        };
        convert(value).ok_or_else(|| {
            format!(
                "`{full_name}` must be {expected}, not {}",
                show_value(value)
            )
        })
    }

    /// Reads a required number, as f64; the error names the key.
    fn read_number(&self, key: &str) -> Result<f64, String> {
        self.read(key, "a number", Value::as_f64)
    }

    /// Reads a required string and returns the value paired with it in `choices`; the error for another word suggests a
    /// near one.
    fn read_choice<T: Copy>(&self, key: &str, choices: &[(&'static str, T)]) -> Result<T, String> {
        let names = choices.iter().map(|(name, _)| *name);
        let expected = names
            .clone()
            .map(|name| format!("\"{name}\""))
            .collect::<Vec<_>>()
            .join(" or ");
        let word = self.read(key, &expected, Value::as_str)?;
        let chosen = choices.iter().find(|(name, _)| *name == word);
        chosen.map(|(_, choice)| *choice).ok_or_else(|| {
            let hint = hint(word, names);
            format!(
                "`{}` is \"{word}\", which popfit does not know{hint}",
                self.full_name(key)
            )
        })
    }
}

/// Returns a JSON value as text for a message: itself up to 40 characters, otherwise only its kind, such as "a list".
fn show_value(value: &Value) -> String {
    let text = value.to_string();
    match value {
        _ if text.chars().count() <= 40 => text,
        Value::Array(_) => "a list".to_string(),
        Value::Object(_) => "an object".to_string(),
        _ => "a long text".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::Description;

    const GOOD: &str = r#"{"version": 1, "activation": "silu", "output": "exp", "labels":
        [{"name": "teff", "transform": "log10", "mean": 3.7, "std": 0.1, "min": 4000, "max": 7000}]}"#;

    /// Every message names the key and the expected value.
    #[test]
    fn messages_name_the_key_and_the_expected_value() {
        assert!(Description::parse(GOOD).is_ok());
        let cases = [
            (
                "\"silu\"",
                "\"silo\"",
                "`activation` is \"silo\", which popfit does not know; did you mean `silu`?",
            ),
            (
                "\"silu\"",
                "1",
                "`activation` must be \"silu\" or \"leaky_relu\"",
            ),
            (
                "\"activation\"",
                "\"activaton\"",
                "`activation` is missing: expected \"silu\" or",
            ),
            ("\"activation\"", "\"activaton\"", "; there is `activaton`"),
            (
                "\"exp\"",
                "\"log\"",
                "`output` is \"log\", which popfit does not know",
            ),
            (
                "0.1",
                "\"0.1\"",
                "`labels[0].std` must be a number, not \"0.1\"",
            ),
            (
                "\"mean\"",
                "\"average\"",
                "`labels[0].mean` is missing: expected a number",
            ),
            ("\"teff\"", "7", "`labels[0].name` must be a string, not 7"),
            (
                "log10",
                "log",
                "`labels[0].transform` is \"log\", which popfit does not know; did you mean `log10`?",
            ),
            (
                "1,",
                "2,",
                "`version` is 2, but this popfit reads version 1",
            ),
            ("1,", "\"1\",", "`version` must be an integer, not \"1\""),
            (
                "1,",
                "1, \"clip\": -1,",
                "`clip` must be a positive number, not -1",
            ),
            (
                "1,",
                "1, \"hull\": [0],",
                "`hull` must be a list of lists of label indices, from 0, not [0]",
            ),
            (
                "1,",
                "1, \"activation_assumed\": 1,",
                "`activation_assumed` must be true or false, not 1",
            ),
            (
                "1,",
                "1, \"source_sha256\": \"x\",",
                "`source_sha256` must be 64 hexadecimal digits, not \"x\"",
            ),
            (
                "1,",
                "1, \"medium\": \"air\",",
                "`medium` must be \"vacuum\"",
            ),
            ("1,", "1, \"version\": 1,", "key `version` twice"),
            ("\"mean\"", "\"std\": 1, \"mean\"", "key `std` twice"),
            ("[{", "{", "is no valid JSON"),
        ];
        for (from, to, expected) in cases {
            let message = Description::parse(&GOOD.replacen(from, to, 1))
                .err()
                .unwrap_or_default();
            assert!(message.contains(expected), "{to}: {message}");
        }
        assert_eq!(
            Description::parse("[]").err().as_deref(),
            Some("must be a JSON object, not []")
        );
    }
}
