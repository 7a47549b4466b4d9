//! A validator of the part of JSON Schema (draft 7) that the model file's schema uses. It fails on any other keyword.

use serde_json::Value;

pub struct Schema(pub Value);

/// Keywords that describe, and constrain nothing.
const NOTES: [&str; 5] = ["$schema", "title", "description", "default", "definitions"];

impl Schema {
    pub fn accepts(&self, value: &Value) -> bool {
        self.holds(&self.0, value)
    }

    /// Follows a reference.
    pub fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            Some(reference) => self
                .0
                .pointer(reference.strip_prefix('#').unwrap())
                .unwrap(),
            None => schema,
        }
    }

    fn holds(&self, schema: &Value, value: &Value) -> bool {
        if schema.get("$ref").is_some() {
            return self.holds(self.resolve(schema), value);
        }
        schema
            .as_object()
            .unwrap()
            .iter()
            .all(|(keyword, rule)| self.keyword(schema, keyword, rule, value))
    }

    fn keyword(&self, schema: &Value, keyword: &str, rule: &Value, value: &Value) -> bool {
        let all_of = |rule: &Value| {
            rule.as_array()
                .unwrap()
                .iter()
                .map(|part| self.holds(part, value))
                .collect::<Vec<_>>()
        };
        match keyword {
            note if NOTES.contains(&note) => true,
            "type" => is_of_type(rule.as_str().unwrap(), value),
            "enum" => rule.as_array().unwrap().contains(value),
            "const" => rule == value,
            "minimum" => value.as_f64().is_none_or(|x| x >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|x| x <= rule.as_f64().unwrap()),
            "exclusiveMinimum" => value.as_f64().is_none_or(|x| x > rule.as_f64().unwrap()),
            "minItems" => value
                .as_array()
                .is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
            "maxItems" => value
                .as_array()
                .is_none_or(|items| items.len() as u64 <= rule.as_u64().unwrap()),
            "uniqueItems" => value.as_array().is_none_or(|items| {
                items
                    .iter()
                    .enumerate()
                    .all(|(k, item)| !items[..k].contains(item))
            }),
            "items" => value
                .as_array()
                .is_none_or(|items| items.iter().all(|item| self.holds(rule, item))),
            "required" => value.as_object().is_none_or(|o| {
                rule.as_array()
                    .unwrap()
                    .iter()
                    .all(|k| o.contains_key(k.as_str().unwrap()))
            }),
            "properties" => value.as_object().is_none_or(|object| {
                let known = rule.as_object().unwrap();
                object
                    .iter()
                    .all(|(key, value)| known.get(key).is_none_or(|rule| self.holds(rule, value)))
            }),
            "additionalProperties" => value.as_object().is_none_or(|object| {
                let others = object
                    .iter()
                    .filter(|(key, _)| schema["properties"].get(key).is_none());
                others
                    .into_iter()
                    .all(|(_, value)| rule != &Value::Bool(false) && self.holds(rule, value))
            }),
            "allOf" => all_of(rule).into_iter().all(|holds| holds),
            "anyOf" => all_of(rule).into_iter().any(|holds| holds),
            "oneOf" => all_of(rule).into_iter().filter(|holds| *holds).count() == 1,
            "not" => !self.holds(rule, value),
            "if" => !self.holds(rule, value) || self.holds(&schema["then"], value),
            "then" => true, // with `if`
            other => panic!("the validator does not know `{other}`"),
        }
    }
}

fn is_of_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("no type {other}"),
    }
}

/// A TOML document as JSON has it. A number that is not finite becomes null, as JSON has no such numbers.
pub fn json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => Value::from(*number),
        toml::Value::Boolean(flag) => Value::from(*flag),
        toml::Value::Datetime(moment) => Value::from(moment.to_string()),
        toml::Value::Array(items) => items.iter().map(json).collect(),
        toml::Value::Table(table) => table
            .iter()
            .map(|(key, value)| (key.clone(), json(value)))
            .collect(),
    }
}
