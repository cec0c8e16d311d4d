//! Devices in more detail than their mean service times, for the simulator.

use crate::{DiskOrder, DiskSpec, FlashSpec};
use serde::Serialize;

/// How a device is modelled.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeviceModel {
    /// By the mean service times of its [`crate::DeviceSpec`], in order of arrival: as emulated servers are.
    #[default]
    Mean,
    /// By the mechanics of a disk.
    Disk {
        /// Mechanics, seeks and cache.
        spec: DiskSpec,
        /// Which waiting request the disk serves next.
        order: DiskOrder,
    },
    /// By the parts of an SSD.
    Flash {
        /// Dies, channels and buffer.
        spec: FlashSpec,
    },
}
