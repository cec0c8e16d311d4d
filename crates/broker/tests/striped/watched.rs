//! A client's server that a test can make fail, or watch.

use crate::hooked::{Call, Hook};
use stripewise_layout::ServerId;
use stripewise_store::server::ServerError;

pub(crate) struct Watched {
    pub(crate) number: ServerId,
    /// Before a write; an error is the write's, a number its most bytes.
    pub(crate) before_write: fn(ServerId, &str) -> Result<usize, ServerError>,
    pub(crate) before_sync: fn(),
    /// As if the mode of every object forbade it to this process.
    pub(crate) denies: bool,
}

impl Hook for Watched {
    fn before(&self, server: &str, call: Call<'_>) -> Result<usize, ServerError> {
        match call {
            Call::Open(_) if self.denies => return Err(ServerError::Denied { server: server.to_owned() }),
            Call::Write(..) => return (self.before_write)(self.number, server),
            Call::Sync(_) => (self.before_sync)(),
            _ => {}
        }
        Ok(usize::MAX)
    }
}

pub(crate) fn unlimited(_: ServerId, _: &str) -> Result<usize, ServerError> {
    Ok(usize::MAX)
}

/// An [`stripewise_store::client::OpenServer`] with these hooks.
macro_rules! watched {
    ($before_write:expr, $before_sync:expr) => {
        $crate::watched::watched!($before_write, $before_sync, false)
    };
    ($before_write:expr, $before_sync:expr, $denies:expr) => {
        |cluster, number, name, url, stations| {
            let inner = stripewise_store::server::open(cluster, number, name, url, stations)?;
            let (before_write, before_sync) = ($before_write, $before_sync);
            let hook = $crate::watched::Watched { number, before_write, before_sync, denies: $denies };
            Ok(Box::new($crate::hooked::Hooked { inner, hook }))
        }
    };
}
pub(crate) use watched;
