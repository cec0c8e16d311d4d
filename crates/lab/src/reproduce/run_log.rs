//! What an experiment did on emulated servers, and how much smaller it was than the paper's.

use super::emulated::EmulatedRun;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard};
use stripewise_layout::ByteCount;

/// By how much an experiment is smaller than what the paper ran. Requests keep their sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Scale {
    /// Bytes of files are divided by this.
    pub(crate) files: u64,
    /// Bytes of regions are divided by this.
    pub(crate) regions: u64,
}

impl Scale {
    pub(super) const FULL: Scale = Scale { files: 1, regions: 1 };

    pub(crate) fn file(self, full: ByteCount) -> ByteCount {
        ByteCount(full.0 / self.files)
    }

    pub(crate) fn region(self, full: ByteCount) -> ByteCount {
        ByteCount(full.0 / self.regions)
    }
}

/// What an experiment did on emulated servers; of several scales the one that makes files smallest.
#[derive(Debug, Default)]
pub(crate) struct RunLog(Mutex<Logged>);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Logged {
    runs: u64,
    host_bound: u64,
    /// Programs run as a whole, regions moving meanwhile.
    is_live: bool,
    pub(crate) scale: Option<Scale>,
}

impl RunLog {
    pub(super) fn lock(&self) -> MutexGuard<'_, Logged> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The bandwidth of a run, unless the machine set its pace.
    pub(crate) fn mb_per_s(&self, run: &EmulatedRun) -> Option<f64> {
        let mut logged = self.lock();
        logged.runs += 1;
        logged.host_bound += u64::from(run.host_bound);
        (!run.host_bound).then(|| run.mb_per_s())
    }

    /// As [`Self::mb_per_s`], of a whole program beside which regions may have moved.
    pub(crate) fn live_mb_per_s(&self, run: &EmulatedRun) -> Option<f64> {
        self.lock().is_live = true;
        self.mb_per_s(run)
    }

    pub(crate) fn read(&self) -> Logged {
        *self.lock()
    }
}

impl Logged {
    /// What the reader of emulated figures should know; nothing where none was measured.
    pub(crate) fn note(&self) -> Option<String> {
        let Logged { runs, host_bound, is_live, scale } = *self;
        let scale = scale.map_or_else(String::new, |Scale { files, regions }| {
            format!(
                " Files are at most {files} times smaller than said above, regions {regions} times; requests have their full size."
            )
        });
        let moves = match is_live {
            true => {
                "Regions move while the program runs, through the servers that it uses, and their copying is in the program's time."
            }
            false => {
                "Each phase of a program is a run on files that lie as planned for it; moving them there takes none of its time."
            }
        };
        (runs > 0).then(|| {
            format!(
                "Emulated servers, real processes and real bytes, all that was read compared with what was written.{scale} Client links are left out. Planned from \
                 the devices' own parameters. {moves} {runs} \
                 figures, one run each; {host_bound} were paced by this machine even when repeated, and are left out."
            )
        })
    }
}
