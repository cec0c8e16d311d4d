//! The two readings of H2DP's and PADP's figures, which ran on one cluster: on which servers, and with which stripes.

use anyhow::Result;
use stripewise_device::{DeviceSpec, LinkSpec, lookup_device, lookup_link};
use stripewise_layout::ByteCount;

/// Servers, links and clients of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Testbed {
    /// As PADP's stripe pairs suggest them: random accesses start within a millisecond.
    Padp,
    /// By data sheets, disks whose random accesses start with a seek.
    Seeking,
}

impl Testbed {
    /// Disk, SSD and the link of servers and clients.
    pub(super) fn machines(self) -> Result<(DeviceSpec, DeviceSpec, LinkSpec)> {
        match self {
            Self::Padp => {
                let (hdd, ssd) = devices()?;
                Ok((hdd, ssd, lookup_link("padp-gigabit")?))
            }
            Self::Seeking => Ok((lookup_device("hdd-7200")?, lookup_device("paper-ssd")?, lookup_link("gigabit")?)),
        }
    }
}

/// What PADP's servers deliver through their file system. A published pair says that both classes finish together, alpha_h - alpha_s = s beta_s - h beta_h;
/// the three rates are free. Of a grid over them, all profiles were kept that give the four pairs of figure 4, <0,32K> for 128 KiB in every mode (figure
/// 7) and h > 0 for 2 MiB; of those, the rates of `padp-hdd` and `padp-ssd` come as near as any, within 1 %, to the two maxima over DEF of figure 4 in the
/// simulator (149.2 % read, 271.8 % write), and nearest to the devices' data sheets. Not published: startup of the SServers' drive as in `paper-ssd`.
pub(super) fn devices() -> Result<(DeviceSpec, DeviceSpec)> {
    Ok((lookup_device("padp-hdd")?, lookup_device("padp-ssd")?))
}

/// The least stripe of the second reading: DEF's.
pub(super) const MIN_STRIPE: ByteCount = ByteCount(64 << 10);

/// How the stripe sizes of the papers that choose them are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// On the lattice of 4 KiB of H2DP's algorithm 1.
    AsPrinted,
    /// With the policies' option `--min-stripe 64KiB`.
    LargeStripes,
}

pub(super) const READINGS: [Reading; 2] = [Reading::AsPrinted, Reading::LargeStripes];

impl Reading {
    pub(super) fn min_stripe(self) -> Option<ByteCount> {
        (self == Self::LargeStripes).then_some(MIN_STRIPE)
    }

    /// Added to what is compared.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::AsPrinted => "",
            Self::LargeStripes => ", stripes of 64KiB or more",
        }
    }
}
