//! Objects to measure a server by.

use super::RadosServer;
use super::store::connect_with;
use std::time::Duration;
use stripewise_layout::ServerUrl;
use stripewise_store::server::ServerError;
use stripewise_store::server::rados::{RadosUrl, SCHEME};

/// After which an operation is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server's pool to measure, beside the agent that has it: objects in a namespace of their own, which are removed when this is dropped.
pub struct Scratch(RadosServer);

impl Scratch {
    /// Looks at server `name` of a cluster, and removes what an earlier one of these left behind. There may be one at a time.
    ///
    /// # Errors
    /// As [`super::inspect`]. Operations that get no answer in 30 s fail.
    pub fn open(cluster: &str, name: &str, url: &ServerUrl) -> Result<Self, ServerError> {
        if url.scheme() != SCHEME {
            let what = format!("`{url}`: `calibrate` does not measure servers of the kind `{}`", url.scheme());
            return Err(ServerError::Unusable { server: name.to_owned(), what });
        }
        let url = RadosUrl::parse(url).map_err(|what| ServerError::Unusable { server: name.to_owned(), what })?;
        let connection = connect_with(name, &url, Some(PATIENCE))?;
        RadosServer::inspect(&connection, cluster, name, &url.pool)?;
        let scratch = Self(RadosServer::within(&connection, &format!("{cluster}.scratch"), name, &url.pool)?);
        scratch.clear()?;
        Ok(scratch)
    }

    /// For objects that are nobody else's.
    #[must_use]
    pub fn store(&self) -> &RadosServer {
        &self.0
    }

    fn clear(&self) -> Result<(), ServerError> {
        self.0.remove_all()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays where a pool does not answer is removed by the next one.
        let _ = self.clear();
    }
}
