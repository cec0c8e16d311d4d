//! What every JSON object of the command carries.

use serde::Serialize;

/// The version of every object that `--json` prints.
pub const JSON_VERSION: u32 = 1;

/// `value`, a structure with named fields, with its version and the command's name.
pub fn envelope<'a, T: Serialize>(command: &'a str, value: &'a T) -> impl Serialize + 'a {
    Envelope { version: JSON_VERSION, command, value }
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    version: u32,
    command: &'a str,
    #[serde(flatten)]
    value: &'a T,
}
