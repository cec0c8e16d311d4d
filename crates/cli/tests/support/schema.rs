//! Whether values have the forms of `docs/schemas`: a check of the keywords that generated schemas contain. Any other keyword is a fault.
//!
//! It is stricter than JSON Schema in one point: an object has only the fields that its schema names, so that a field cannot be printed
//! without being documented. The crates that validate all of JSON Schema take minutes to build.

use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas")
}

/// The stored schema of that name.
pub(crate) fn schema(name: &str) -> Value {
    let path = directory().join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// Fails the test unless `value` has the form of that name.
pub(crate) fn check(name: &str, value: &Value) {
    let faults = faults(&schema(name), value);
    assert!(faults.is_empty(), "docs/schemas/{name}.json: {}\nin {value:#}", faults.join("\n"));
}

/// What is wrong with `value`, each with its place.
pub(crate) fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    Checker { root: schema }.check(schema, value, "$", &mut faults);
    faults
}

struct Checker<'a> {
    root: &'a Value,
}

impl Checker<'_> {
    fn check(&self, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
        match schema {
            Value::Bool(true) => {}
            Value::Object(schema) => {
                for (keyword, rule) in schema {
                    self.check_keyword(keyword, rule, value, at, faults);
                }
                if let Value::Object(fields) = value {
                    self.check_fields(schema, fields, at, faults);
                }
            }
            _ => faults.push(format!("{at}: nothing is allowed here")),
        }
    }

    fn check_keyword(&self, keyword: &str, rule: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
        let is_right = match keyword {
            "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
            // Of objects, see `check_fields`.
            "properties" | "additionalProperties" => true,
            "$ref" => {
                let target = rule.as_str().and_then(|reference| self.root.pointer(reference.strip_prefix('#')?));
                return self.check(target.expect("a definition"), value, at, faults);
            }
            "type" => match rule {
                Value::Array(types) => types.iter().any(|of| is_of(value, of)),
                of => is_of(value, of),
            },
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "minLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 >= rule.as_u64().unwrap()),
            "maxLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 <= rule.as_u64().unwrap()),
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= rule.as_u64().unwrap()),
            "required" => rule.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some()),
            "items" | "prefixItems" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    let of = rule.as_array().map_or(Some(rule), |rules| rules.get(number));
                    if let Some(of) = of {
                        self.check(of, item, &format!("{at}[{number}]"), faults);
                    }
                }
                return;
            }
            "allOf" => return rule.as_array().unwrap().iter().for_each(|one| self.check(one, value, at, faults)),
            "anyOf" | "oneOf" => return self.check_alternatives(keyword, rule.as_array().unwrap(), value, at, faults),
            _ => panic!("this check does not know the keyword `{keyword}`; teach it"),
        };
        if !is_right {
            faults.push(format!("{at}: {value} is not {keyword} {rule}"));
        }
    }

    /// The faults of the nearest alternative, if none fits.
    fn check_alternatives(&self, keyword: &str, rules: &[Value], value: &Value, at: &str, faults: &mut Vec<String>) {
        let tried = rules.iter().map(|rule| {
            let mut found = Vec::new();
            self.check(rule, value, at, &mut found);
            found
        });
        let tried: Vec<Vec<String>> = tried.collect();
        match tried.iter().filter(|found| found.is_empty()).count() {
            0 => faults.extend(tried.into_iter().min_by_key(Vec::len).unwrap_or_default()),
            1 => {}
            several if keyword == "oneOf" => faults.push(format!("{at}: {several} alternatives fit {value}")),
            _ => {}
        }
    }

    fn check_fields(
        &self,
        schema: &Map<String, Value>,
        fields: &Map<String, Value>,
        at: &str,
        faults: &mut Vec<String>,
    ) {
        let known = schema.get("properties").and_then(Value::as_object);
        let others = schema.get("additionalProperties");
        if known.is_none() && others.is_none() {
            return;
        }
        for (name, value) in fields {
            match (known.and_then(|known| known.get(name)), others) {
                (Some(rule), _) | (None, Some(rule)) => self.check(rule, value, &format!("{at}.{name}"), faults),
                (None, None) => faults.push(format!("{at}.{name}: no such field is documented")),
            }
        }
    }
}

fn is_of(value: &Value, of: &Value) -> bool {
    match of.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type of JSON: {other}"),
    }
}
