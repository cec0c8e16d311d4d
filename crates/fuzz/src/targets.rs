//! One module for each kind of input.

pub mod cluster;
pub mod description;
pub mod link;
pub mod manifest;
pub mod packet;
pub mod plan;
pub mod profile;
pub mod record;
pub mod site;
pub mod stub;
pub mod table;
pub mod trace;
