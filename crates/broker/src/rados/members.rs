//! A pool as a server of a cluster that several hosts share: who uses it, and who does not any more.
//!
//! Each host's agent is a client of its own. The marker says of each host, under the key `agent.HOST`, by which addresses Ceph knows its agent, or
//! `shut out N`: then it comes in again with an admission above N only ([`crate::membership`]). The key `master` has the admission and the name of
//! the last master that opened the server.
//!
//! Every change compares what was read before it, so of two that would change the same one does, and the other looks again. A client is blocklisted before the
//! marker says that it is no user any more. So whoever finds it gone can be sure of that, and a client that comes in meanwhile is found.
//!
//! A master that opens a server shuts out the one before it: what that one began to truncate or to remove, and nobody heard of, must not happen later.
//! A host that opens one shuts out its former agent, which has ended.

#[cfg(test)]
mod tests;

use super::connection::Connection;
use super::error::RadosError;
use super::operation::Operation;
use super::store::{AGENT, MARKER, RadosServer, connect, with_throttle};
use crate::membership::Membership;
use std::collections::BTreeMap;
use std::sync::Arc;
use stripewise_layout::ServerUrl;
use stripewise_store::server::rados::RadosUrl;
use stripewise_store::server::{ObjectStore, ServerError};

const MASTER: &str = "master";
const SHUT_OUT: &str = "shut out ";
/// How often a marker is looked at again that others change at the same time.
const MAX_ATTEMPTS: usize = 100;

type Keys = BTreeMap<String, Vec<u8>>;

/// What a marker says of a host.
enum Seat<'k> {
    Empty,
    /// Up to this admission.
    ShutOut(u64),
    Taken(&'k str),
}

fn key_of(host: &str) -> String {
    format!("{AGENT}.{host}")
}

fn text_of<'k>(keys: &'k Keys, key: &str) -> &'k str {
    keys.get(key).and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default()
}

fn seat_of<'k>(keys: &'k Keys, host: &str) -> Seat<'k> {
    match text_of(keys, &key_of(host)) {
        "" => Seat::Empty,
        text => match text.strip_prefix(SHUT_OUT).and_then(|number| number.parse().ok()) {
            Some(admission) => Seat::ShutOut(admission),
            None => Seat::Taken(text),
        },
    }
}

/// The last master's admission and name.
fn master_of(keys: &Keys) -> Option<(u64, &str)> {
    let (admission, host) = text_of(keys, MASTER).split_once(' ')?;
    Some((admission.parse().ok()?, host))
}

/// Opens server `name` of a cluster that several hosts share.
///
/// # Errors
/// As [`connect`]; [`ServerError::ShutOut`] where the host is not admitted any more, or the role is over for which it is opened; [`ServerError::Unusable`] where no master has admitted it yet, the pool is
/// not this server, or it does not answer.
pub(crate) fn open_shared(
    cluster: &str,
    name: &str,
    url: &ServerUrl,
    membership: &Membership,
) -> Result<Box<dyn ObjectStore>, ServerError> {
    let unusable = |what: String| ServerError::Unusable { server: name.to_owned(), what };
    let url = RadosUrl::parse(url).map_err(unusable)?;
    let admission = membership.admission().ok_or_else(|| {
        unusable(format!("host {} is not admitted to it yet; it is when it follows a master", membership.host()))
    })?;
    if membership.is_over() {
        return Err(ServerError::ShutOut { server: name.to_owned() });
    }
    let connection = connect(name, &url)?;
    let open = |connection: &Arc<Connection>| {
        let server = RadosServer::within(connection, cluster, name, &url.pool)?;
        server.join(membership, admission)?;
        Ok(server)
    };
    let opened = match open(&connection) {
        // Shut out since it connected; another client comes in if the host is admitted.
        Err(_) if connection.is_shut_out() => open(&connect(name, &url)?),
        opened => opened,
    }?;
    // Looked at again: it may have taken long, and by the connection of a later role.
    if membership.is_over() {
        return Err(opened.shut_out_error());
    }
    with_throttle(&url, opened)
}

impl RadosServer {
    fn shut_out_error(&self) -> ServerError {
        ServerError::ShutOut { server: self.name().to_owned() }
    }

    /// Changes the marker if these keys still are as they were read. `false`: they are not.
    fn change_marker(&self, keys: &Keys, changes: &[(String, String)]) -> Result<bool, ServerError> {
        let expected: Vec<_> =
            changes.iter().map(|(key, _)| (key.as_str(), keys.get(key).map_or(&b""[..], Vec::as_slice))).collect();
        let set: Vec<_> = changes.iter().map(|(key, value)| (key.as_str(), value.as_bytes())).collect();
        match self.pool().run(MARKER, Operation::ChangeKeys { expected: &expected, set: &set, remove: &[] }) {
            Ok(_) => Ok(true),
            Err(RadosError::Unmet { .. }) => Ok(false),
            Err(error) => Err(self.fault(None, error)),
        }
    }

    fn changed_all_the_time(&self) -> ServerError {
        let what = "its marker changes all the time; end what opens it again and again".to_owned();
        ServerError::Unusable { server: self.name().to_owned(), what }
    }

    /// Makes this client the agent of a host here.
    fn join(&self, membership: &Membership, admission: u64) -> Result<(), ServerError> {
        let connection = self.pool().connection();
        let fault = |error| self.fault(None, error);
        let own = connection.addresses().map_err(fault)?;
        for _ in 0..MAX_ATTEMPTS {
            let keys = self.check_marker()?;
            let mut changes = vec![(key_of(membership.host()), own.clone())];
            match seat_of(&keys, membership.host()) {
                Seat::ShutOut(last) if last >= admission => return Err(self.shut_out_error()),
                Seat::Taken(before) if before != own => connection.shut_out(before).map_err(fault)?,
                Seat::Empty | Seat::ShutOut(_) | Seat::Taken(_) => {}
            }
            if membership.is_master() {
                match master_of(&keys) {
                    // A later master is there.
                    Some((last, _)) if last > admission => return Err(self.shut_out_error()),
                    Some((_, last)) if last != membership.host() => {
                        if let Seat::Taken(before) = seat_of(&keys, last) {
                            connection.shut_out_alive(before).map_err(fault)?;
                            changes.push((key_of(last), format!("{SHUT_OUT}{admission}")));
                        }
                    }
                    _ => {}
                }
                changes.push((MASTER.to_owned(), format!("{admission} {}", membership.host())));
            }
            if self.change_marker(&keys, &changes)? {
                return Ok(());
            }
        }
        Err(self.changed_all_the_time())
    }

    /// See [`ObjectStore::fence_host`].
    pub(super) fn shut_host_out(&self, host: &str, admission: u64) -> Result<(), ServerError> {
        for _ in 0..MAX_ATTEMPTS {
            let keys = self.check_marker()?;
            match seat_of(&keys, host) {
                Seat::ShutOut(last) if last >= admission => return Ok(()),
                Seat::Taken(addresses) => {
                    let shut_out = self.pool().connection().shut_out_alive(addresses);
                    shut_out.map_err(|error| self.fault(None, error))?;
                }
                Seat::Empty | Seat::ShutOut(_) => {}
            }
            if self.change_marker(&keys, &[(key_of(host), format!("{SHUT_OUT}{admission}"))])? {
                return Ok(());
            }
        }
        Err(self.changed_all_the_time())
    }
}
