//! Files that are yet to be made: telling the broker of many, and asking whether it expects one.

use super::{Client, ClientError, unexpected};
use crate::protocol::{Admin, ExpectedFile, MAX_PACKET_BYTES, Reply, Request};

/// In one packet, which has a head besides.
const MAX_LIST_BYTES: usize = MAX_PACKET_BYTES - 1024;

impl Client {
    /// New files at these paths get their placements and replicas. Sent in as few packets as hold them, each durable as a whole; `goes_on` is
    /// asked before each, and false ends it. Returns whether all were sent.
    ///
    /// # Errors
    ///
    /// Those of [`Client::request`]; packets sent before it are durable.
    pub fn expect(&self, files: Vec<ExpectedFile>, goes_on: &dyn Fn() -> bool) -> Result<bool, ClientError> {
        let (mut list, mut bytes) = (Vec::new(), 0);
        for file in files {
            let length = postcard::to_stdvec(&file).map_or(MAX_LIST_BYTES, |encoded| encoded.len());
            if bytes + length > MAX_LIST_BYTES && !list.is_empty() {
                if !goes_on() {
                    return Ok(false);
                }
                self.send_expected(std::mem::take(&mut list))?;
                bytes = 0;
            }
            bytes += length;
            list.push(file);
        }
        if !goes_on() {
            return Ok(false);
        }
        if !list.is_empty() {
            self.send_expected(list)?;
        }
        Ok(true)
    }

    /// Whether a new file at the absolute `path` gets a planned placement. The names are those of the connection; where they were too many for it,
    /// their directories are, and the broker is asked of a name in one of these.
    ///
    /// # Errors
    ///
    /// Those of [`Client::request`].
    pub fn expects(&self, path: &str) -> Result<bool, ClientError> {
        let directory = path.rfind('/').map_or("", |at| &path[..=at]);
        if self.core.names.expected.iter().any(|expected| expected == path) {
            return Ok(true);
        }
        if !self.core.names.expected.iter().any(|expected| expected == directory) {
            return Ok(false);
        }
        match self.core.call(&Request::IsExpected { path: path.to_owned() }, &[])?.reply {
            Reply::Expected { expected } => Ok(expected),
            reply => Err(unexpected("IsExpected", &reply)),
        }
    }

    fn send_expected(&self, files: Vec<ExpectedFile>) -> Result<(), ClientError> {
        self.request(&Request::Admin(Admin::ExpectFiles { files }), &[]).map(drop)
    }
}
