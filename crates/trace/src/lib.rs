//! The access event, Stripewise's trace format with its writer and readers, pattern statistics and workload generators.

mod access;

pub use access::{AccessClass, ClassIndex, FileAccess, RegionAccess, WindowAccess};
