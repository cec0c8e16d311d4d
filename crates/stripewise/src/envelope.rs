//! What every JSON object of the command carries.

use serde::Serialize;

/// The version of every object that `--json` prints.
pub const JSON_VERSION: u32 = 1;

/// `value`, a structure with named fields, with its version and the command's name.
pub fn envelope<'a, T: Serialize>(command: &'a str, value: &'a T) -> impl Serialize + 'a {
    Envelope { version: JSON_VERSION, command, value }
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct Envelope<'a, T> {
    /// Of the output; another version means other fields.
    #[cfg_attr(feature = "schemas", schemars(extend("const" = JSON_VERSION)))]
    version: u32,
    /// The command that printed the object.
    command: &'a str,
    #[serde(flatten)]
    value: &'a T,
}

/// The schema of [`envelope`] around a `T`.
#[cfg(feature = "schemas")]
pub fn schema<T: schemars::JsonSchema>(command: &str, generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let value = T::json_schema(generator);
    let mut schema = <Envelope<'_, T> as schemars::JsonSchema>::json_schema(generator);
    if let Some(name) = schema.pointer_mut("/properties/command").and_then(serde_json::Value::as_object_mut) {
        name.insert("const".into(), command.into());
    }
    match value.get("description") {
        Some(description) => schema.insert("description".into(), description.clone()),
        None => schema.remove("description"),
    };
    schema
}
