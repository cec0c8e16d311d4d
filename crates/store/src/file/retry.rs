//! Why a request leaves its lane before it is done, and how what stands in its way is removed.

use super::{FileError, StripedFile};
use crate::client::objects::{ObjectKey, Opened};
use crate::protocol::Request;
use crate::server::{ObjectName, ServerError};
use crate::shared::control::MAX_REGIONS;
use rustix::fs::OFlags;
use rustix::io::Errno;
use stripewise_layout::RegionIndex;

/// Why a request must leave its lane before it can go on.
pub(super) enum RetryReason {
    /// What it saw has changed meanwhile.
    Again,
    /// Regions without objects.
    Place {
        first: RegionIndex,
        last: RegionIndex,
    },
    /// Regions with replicas, which have to be forgotten before a write.
    Pin {
        first: RegionIndex,
        last: RegionIndex,
    },
    /// A region whose writers wait for the end of its move.
    Sealed(RegionIndex),
    /// Bytes beyond the size on a server, over which the request would leave a gap.
    Leftovers,
    /// An object that this process may not open by itself.
    Object(ObjectKey),
    /// The file's small parts may lie in logs that this process does not know yet.
    Fragments,
    /// A server of the region's place has no space left; the region may move.
    Full {
        key: ObjectKey,
        error: FileError,
    },
    Fault(FileError),
}

impl StripedFile {
    /// Removes what stood in the way, outside the lane.
    #[cold]
    pub(super) fn resolve(&self, reason: RetryReason) -> Result<(), FileError> {
        let file = self.open.id();
        match reason {
            RetryReason::Again => Ok(()),
            RetryReason::Sealed(region) => self.wait_while_sealed(region),
            RetryReason::Pin { first, last } => {
                self.check_not_replaced()?;
                self.open
                    .core()
                    .done(&Request::Pin { file, first, last }, &[])
                    .map_err(|source| self.broker(source))?;
                self.check_not_replaced()
            }
            RetryReason::Leftovers => {
                self.check_not_replaced()?;
                self.open.core().done(&Request::Tidy { file }, &[]).map_err(|source| self.broker(source))
            }
            RetryReason::Place { first, last } => {
                self.check_not_replaced()?;
                self.open
                    .core()
                    .done(&Request::Place { file, first, last }, &[])
                    .map_err(|source| self.broker(source))?;
                self.check_not_replaced()
            }
            RetryReason::Object(key) => {
                let ObjectName { region, generation, .. } = key.object;
                let request = Request::OpenObject { file, region, generation, server: key.server.0 };
                let object = self.open.core().object_from_broker(&request).map_err(|source| self.broker(source))?;
                if key.direct {
                    // The broker opens for all alike; a file system without direct transfers goes through its cache.
                    let _ = rustix::fs::fcntl_getfl(&object)
                        .and_then(|flags| rustix::fs::fcntl_setfl(&object, flags | OFlags::DIRECT));
                }
                drop(self.open.core().objects.insert(&key, Opened::Descriptor(object)));
                Ok(())
            }
            RetryReason::Fragments => self.check_for_fragments(),
            RetryReason::Full { key, error } => {
                let ObjectName { region, generation, .. } = key.object;
                let request = Request::Rescue { file, region, generation, server: key.server.0 };
                // Whatever keeps the region where it is, the program's error is that the server is full.
                self.open.core().done(&request, &[]).map_err(|_| error)?;
                self.check_not_replaced()
            }
            RetryReason::Fault(error) => Err(error),
        }
    }

    #[cold]
    pub(super) fn fault(&self, error: ServerError) -> RetryReason {
        RetryReason::Fault(self.server(error))
    }

    /// Of a write to an object of a region's place, or of a log.
    #[cold]
    pub(super) fn write_fault(&self, key: &ObjectKey, error: ServerError) -> RetryReason {
        let is_full = matches!(error, ServerError::NoSpace { .. }) && key.object.region.0 < MAX_REGIONS;
        let error = self.server(error);
        if is_full { RetryReason::Full { key: *key, error } } else { RetryReason::Fault(error) }
    }

    #[cold]
    pub(super) fn no_progress(&self, key: &ObjectKey) -> ServerError {
        ServerError::Os {
            server: self.open.core().server_name(key.server),
            action: "writing nothing",
            source: Errno::IO,
        }
    }
}
