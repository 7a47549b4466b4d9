//! Reads a TOML table key by key; every message names the file, the line and the key.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Error, Result};
use crate::spectra::Widening;
use crate::suggest::hint;

type Value<'a> = Spanned<DeValue<'a>>;

/// A number, or the column of the spectra's table that holds one for each spectrum.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Setting {
    Number(f64),
    Column(String),
}

impl Setting {
    /// Returns (number, `None`) for a number and (`None`, name) for a column.
    pub fn split(self) -> (Option<f64>, Option<String>) {
        match self {
            Setting::Number(number) => (Some(number), None),
            Setting::Column(name) => (None, Some(name)),
        }
    }

    /// Returns the number; `None` for a column.
    fn number(&self) -> Option<f64> {
        match self {
            Setting::Number(number) => Some(*number),
            Setting::Column(_) => None,
        }
    }
}

/// The file being read.
#[derive(Clone, Copy)]
pub(super) struct Document<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl Document<'_> {
    /// Parses the whole file as a TOML table; a syntax error names the file and the line.
    pub fn parse(&self) -> Result<Spanned<DeTable<'_>>> {
        DeTable::parse(self.text).map_err(|error| match error.span() {
            Some(span) => Error::model(format!(
                "{}: {}",
                self.describe_place(span),
                error.message().replace('\n', ", ")
            )),
            None => Error::model(format!("{}: {}", self.path.display(), error.message())),
        })
    }

    /// Makes an error of the setting `key`, whose message begins with the file's path and the line of `span`.
    pub fn error(&self, key: String, span: Range<usize>, message: impl std::fmt::Display) -> Error {
        Error::model_setting(key, format!("{}: {message}", self.describe_place(span)))
    }

    /// Returns `PATH, line N` for a byte range of the text, for messages.
    fn describe_place(&self, span: Range<usize>) -> String {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        format!(
            "{}, line {}",
            self.path.display(),
            before.matches('\n').count() + 1
        )
    }
}

/// One table of the file. `key` is its full name, "" for the whole file.
pub(super) struct Section<'a> {
    document: Document<'a>,
    key: String,
    table: &'a DeTable<'a>,
    span: Range<usize>,
}

impl<'a> Section<'a> {
    /// Makes the section that is the whole file, whose keys have no prefix in messages.
    pub fn whole_file(document: Document<'a>, table: &'a Spanned<DeTable<'a>>) -> Section<'a> {
        Section {
            document,
            key: String::new(),
            table: table.get_ref(),
            span: table.span(),
        }
    }

    /// Fails, with a suggestion, if the section has a key that is not in `known`. The error lists these, the most
    /// similar one first.
    pub fn check_keys(&self, known: &[&str]) -> Result<()> {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let hint = hint(name, known.iter().copied());
                let key = self.full_key(name);
                let message = format!("unknown key `{key}`{hint}");
                return Err(self.document.error(key, self.key_span(name), message));
            }
        }
        Ok(())
    }

    /// Returns the names of the table's keys.
    pub fn key_names(&self) -> impl Iterator<Item = &'a str> {
        self.table.keys().map(|key| key.get_ref().as_ref())
    }

    /// Returns whether the section has a key of this name.
    pub fn has_key(&self, name: &str) -> bool {
        self.table.get(name).is_some()
    }

    /// Returns a key's name with the section's in front, such as `continuum.terms`, for messages.
    pub fn full_key(&self, name: &str) -> String {
        if self.key.is_empty() {
            name.to_string()
        } else {
            format!("{}.{name}", self.key)
        }
    }

    /// Makes an error whose message begins with the file, the line and the full name of this key.
    pub fn error(&self, name: &str, message: impl std::fmt::Display) -> Error {
        let key = self.full_key(name);
        let message = format!("`{key}` {message}");
        self.document.error(key, self.key_span(name), message)
    }

    /// Returns the sub-table under this key; `None` if the key is absent, an error if its value is no table.
    pub fn open_section(&self, name: &str) -> Result<Option<Section<'a>>> {
        let Some(value) = self.table.get(name) else {
            return Ok(None);
        };
        let table = value
            .get_ref()
            .as_table()
            .ok_or_else(|| self.value_error(name, value, "a table"))?;
        Ok(Some(Section {
            document: self.document,
            key: self.full_key(name),
            table,
            span: self.key_span(name),
        }))
    }

    /// Returns the tables under `[[name]]`, in the file's order; empty if the key is absent, an error if its value is
    /// no array of tables. They are called `name[1]`, `name[2]`, ….
    pub fn open_sections(&self, name: &str) -> Result<Vec<Section<'a>>> {
        let Some(value) = self.table.get(name) else {
            return Ok(Vec::new());
        };
        let type_error =
            || self.value_error(name, value, &format!("an array of tables: [[{name}]]"));
        let items = value.get_ref().as_array().ok_or_else(type_error)?;
        let mut sections = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let table = item.get_ref().as_table().ok_or_else(type_error)?;
            sections.push(Section {
                document: self.document,
                key: format!("{}[{}]", self.full_key(name), i + 1),
                table,
                span: item.span(),
            });
        }
        Ok(sections)
    }

    /// Returns the value that was read from the key `name`; if it is `None`, an error that the key is missing.
    pub fn require<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| {
            let key = self.full_key(name);
            let message = format!("`{key}` is missing");
            self.document.error(key, self.span.clone(), message)
        })
    }

    /// Reads an optional string; `None` if the key is absent, an error if its value is of another type.
    pub fn read_text(&self, name: &str) -> Result<Option<&'a str>> {
        self.read_value(name, "a string", |value| value.as_str())
    }

    /// Reads an optional boolean; `None` if the key is absent, an error if its value is of another type.
    pub fn read_boolean(&self, name: &str) -> Result<Option<bool>> {
        self.read_value(name, "true or false", |value| value.as_bool())
    }

    /// Reads an optional finite number, integer or not; `None` if the key is absent, an error for any other value.
    pub fn read_number(&self, name: &str) -> Result<Option<f64>> {
        self.read_value(name, "a finite number", parse_finite_number)
    }

    /// Reads an optional finite number or `{ column = "NAME" }`; `None` if the key is absent, an error for any other
    /// value.
    pub fn read_setting(&self, name: &str) -> Result<Option<Setting>> {
        self.read_value(name, "a finite number or { column = \"NAME\" }", |value| {
            parse_setting(value, parse_finite_number)
        })
    }

    /// Reads an optional `[low, high]`, each a finite number or `{ column = "NAME" }`; fails if two numbers are not low
    /// ≤ high.
    pub fn read_setting_pair(&self, name: &str) -> Result<Option<(Setting, Setting)>> {
        let limits = self.read_value(
            name,
            "[low, high], finite numbers or { column = \"NAME\" }",
            |value| parse_pair(value, |item| parse_setting(item, parse_number)),
        )?;
        if let Some((low, high)) = &limits {
            // A column can give any number.
            let lower = low.number().unwrap_or(f64::MIN);
            let upper = high.number().unwrap_or(f64::MAX);
            self.check_order(name, lower, upper)?;
        }
        Ok(limits)
    }

    /// Reads an optional integer; `None` if the key is absent, an error if its value is not an integer in `allowed`.
    pub fn read_integer(
        &self,
        name: &str,
        allowed: std::ops::RangeInclusive<usize>,
    ) -> Result<Option<usize>> {
        let expectation = format!("an integer from {} to {}", allowed.start(), allowed.end());
        self.read_value(name, &expectation, |value| {
            parse_integer(value).filter(|n| allowed.contains(n))
        })
    }

    /// Reads an optional `[low, high]`; `None` if the key is absent, [`Error::BadBounds`] unless both are finite and
    /// low ≤ high.
    pub fn read_interval(&self, name: &str) -> Result<Option<(f64, f64)>> {
        let interval = self.read_value(name, "[low, high], two finite numbers", |value| {
            parse_pair(value, parse_number)
        })?;
        match interval {
            Some((low, high)) => self.check_order(name, low, high),
            None => Ok(None),
        }
    }

    /// Reads an array of intervals `[[low, high], …]`, each finite and low ≤ high; empty if the key is absent.
    pub fn read_intervals(&self, name: &str) -> Result<Vec<(f64, f64)>> {
        let intervals = self.read_value(name, "[[low, high], …]", |value| {
            parse_array(value, |item| parse_pair(item, parse_number))
        })?;
        let intervals = intervals.unwrap_or_default();
        for &(low, high) in &intervals {
            self.check_order(name, low, high)?;
        }
        Ok(intervals)
    }

    /// Reads an optional array of numbers of bits, from 0 on; `None` if the key is absent, an error for any other
    /// value.
    pub fn read_bits(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let parse_bit = |value: &DeValue<'_>| {
            u8::try_from(parse_integer(value)?)
                .ok()
                .filter(|bit| *bit <= Widening::MAX_MASK_BIT)
        };
        let expectation = format!("an array of integers from 0 to {}", Widening::MAX_MASK_BIT);
        self.read_value(name, &expectation, |value| parse_array(value, parse_bit))
    }

    /// Reads an optional array of strings; `None` if the key is absent, an error if a value is of another type.
    pub fn read_texts(&self, name: &str) -> Result<Option<Vec<String>>> {
        self.read_value(name, "an array of strings", |value| {
            parse_array(value, |item| item.as_str().map(str::to_string))
        })
    }

    /// Reads an optional string and returns the value paired with it in `choices`; an error that lists the words if it
    /// is none of them.
    pub fn read_choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        self.read_choice_or_form(name, choices, &[])
    }

    /// Reads an optional word as [`read_choice`](Section::read_choice) does; an error also lists `forms` that are not
    /// words.
    pub fn read_choice_or_form<T: Copy>(
        &self,
        name: &str,
        choices: &[(&str, T)],
        forms: &[&str],
    ) -> Result<Option<T>> {
        let words = choices.iter().map(|(word, _)| format!("\"{word}\""));
        let words: Vec<_> = words.chain(forms.iter().map(ToString::to_string)).collect();
        self.read_value(name, &words.join(" or "), |value| {
            let text = value.as_str()?;
            choices
                .iter()
                .find(|(word, _)| *word == text)
                .map(|(_, choice)| *choice)
        })
    }

    /// Reads an optional string and parses it as T; `None` if the key is absent, an error that lists `names` if parsing
    /// fails.
    pub fn read_parsed<T: FromStr>(&self, name: &str, names: &[&str]) -> Result<Option<T>> {
        let words: Vec<_> = names.iter().map(|word| format!("\"{word}\"")).collect();
        self.read_value(name, &words.join(" or "), |value| {
            value.as_str()?.parse().ok()
        })
    }

    /// Returns whether the key exists and its value is a table.
    pub fn is_table(&self, name: &str) -> bool {
        self.table
            .get(name)
            .is_some_and(|value| value.get_ref().is_table())
    }

    /// Returns whether a key's value is a text.
    pub fn is_text(&self, name: &str) -> bool {
        self.table
            .get(name)
            .is_some_and(|value| value.get_ref().is_str())
    }

    /// Reads a key's value with `parse`; `None` if the key is absent, an error that names the expected value if `parse`
    /// returns `None`.
    fn read_value<T>(
        &self,
        name: &str,
        expectation: &str,
        parse: impl Fn(&'a DeValue<'a>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.table.get(name) else {
            return Ok(None);
        };
        parse(value.get_ref())
            .map(Some)
            .ok_or_else(|| self.value_error(name, value, expectation))
    }

    /// Returns `Some` of both bounds if they are finite and lower ≤ upper, else [`Error::BadBounds`] with file, line
    /// and key.
    fn check_order(&self, name: &str, lower: f64, upper: f64) -> Result<Option<(f64, f64)>> {
        if lower.is_finite() && upper.is_finite() && lower <= upper {
            return Ok(Some((lower, upper)));
        }
        let parameter = format!(
            "{}: `{}`",
            self.document.describe_place(self.key_span(name)),
            self.full_key(name)
        );
        Err(Error::BadBounds {
            parameter,
            lower,
            upper,
        })
    }

    /// Makes the error that a key's value must be `expectation`, which quotes a short value and names the type of a
    /// long one.
    fn value_error(&self, name: &str, value: &Value<'_>, expectation: &str) -> Error {
        let text = self.document.text.get(value.span()).unwrap_or_default();
        let actual = if text.len() > 40 || text.contains('\n') {
            value.get_ref().type_str()
        } else {
            text
        };
        self.error(name, format!("must be {expectation}, not {actual}"))
    }

    /// Returns the span of a key in the text, or that of the section if the key is absent.
    fn key_span(&self, name: &str) -> Range<usize> {
        self.table
            .get_key_value(name)
            .map_or(self.span.clone(), |(key, _)| key.span())
    }
}

/// Reads an array, each item with `parse`; `None` for values of other types, or if `parse` returns `None` for an item.
fn parse_array<T>(
    value: &DeValue<'_>,
    parse: impl Fn(&DeValue<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let items = value.as_array()?;
    items.iter().map(|item| parse(item.get_ref())).collect()
}

/// Reads a non-negative integer in any radix of TOML; `None` for other values.
fn parse_integer(value: &DeValue<'_>) -> Option<usize> {
    let integer = value.as_integer()?;
    usize::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// Reads a finite number; `None` for NaN, infinities and values of other types.
fn parse_finite_number(value: &DeValue<'_>) -> Option<f64> {
    parse_number(value).filter(|x| x.is_finite())
}

/// Reads a number, NaN and infinities included, which [`Section::check_order`] refuses with a better message; `None`
/// for other types.
fn parse_number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(float) => float.as_str().parse().ok(),
        DeValue::Integer(n) => Some(i64::from_str_radix(n.as_str(), n.radix()).ok()? as f64),
        _ => None,
    }
}

/// Reads a number, or a table whose only key `column` names a column of the spectra; `None` for other values.
fn parse_setting(value: &DeValue<'_>, parse: fn(&DeValue<'_>) -> Option<f64>) -> Option<Setting> {
    let Some(table) = value.as_table() else {
        return parse(value).map(Setting::Number);
    };
    let column = table.get("column")?.get_ref().as_str()?;
    (table.len() == 1).then(|| Setting::Column(column.to_string()))
}

/// Reads an array of two items, each with `parse`; `None` for anything else.
fn parse_pair<T>(value: &DeValue<'_>, parse: impl Fn(&DeValue<'_>) -> Option<T>) -> Option<(T, T)> {
    let [low, high] = &value.as_array()?[..] else {
        return None;
    };
    Some((parse(low.get_ref())?, parse(high.get_ref())?))
}
