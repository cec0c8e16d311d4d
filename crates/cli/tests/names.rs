//! Names of managed files that change hands: commands and programs at once on one name, and each killed in the midst.

mod support;

#[path = "names/killed.rs"]
mod killed;
#[path = "names/pairs.rs"]
mod pairs;
#[path = "names/renames.rs"]
mod renames;
#[path = "names/serial.rs"]
mod serial;
#[path = "names/settled.rs"]
mod settled;
#[path = "names/traced.rs"]
mod traced;
