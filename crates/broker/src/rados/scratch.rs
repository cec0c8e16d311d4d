//! Objects to measure a pool by, in a namespace of their own.

use super::RadosServer;
use super::store::{connect_with, with_throttle};
use crate::scratch::Scratch;
use std::collections::BTreeSet;
use std::time::Duration;
use stripewise_layout::ServerUrl;
use stripewise_store::server::rados::RadosUrl;
use stripewise_store::server::{ObjectName, ObjectStore, ServerError};

/// After which an operation is given up.
const PATIENCE: Duration = Duration::from_secs(30);

struct RadosScratch {
    pool: RadosServer,
    /// The same, behind its throttle if it has one.
    store: Box<dyn ObjectStore>,
}

/// Looks at server `name` of a cluster, and removes what an earlier one of these left behind.
///
/// # Errors
/// As [`super::inspect`]. Operations that get no answer in 30 s fail.
pub fn scratch(cluster: &str, name: &str, url: &ServerUrl) -> Result<Box<dyn Scratch>, ServerError> {
    let url = RadosUrl::parse(url).map_err(|what| ServerError::Unusable { server: name.to_owned(), what })?;
    let connection = connect_with(name, &url, Some(PATIENCE))?;
    RadosServer::inspect(&connection, cluster, name, &url.pool)?;
    let open = || RadosServer::within(&connection, &format!("{cluster}.scratch"), name, &url.pool);
    let scratch = RadosScratch { pool: open()?, store: with_throttle(&url, open()?)? };
    scratch.pool.remove_all()?;
    Ok(Box::new(scratch))
}

impl Scratch for RadosScratch {
    fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    fn devices(&self, objects: &[ObjectName]) -> Result<BTreeSet<String>, ServerError> {
        let mut devices = BTreeSet::new();
        for object in objects {
            devices.extend(self.pool.osds_of(*object)?.into_iter().map(|osd| format!("osd.{osd}")));
        }
        Ok(devices)
    }

    fn remark(&self) -> &'static str {
        "measured through librados, without the way of a program's requests through the broker; what its OSDs hold in memory, they read from there"
    }
}

impl Drop for RadosScratch {
    fn drop(&mut self) {
        // What stays where a pool does not answer is removed by the next one.
        let _ = self.pool.remove_all();
    }
}
