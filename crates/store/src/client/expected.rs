//! Telling the broker of many files that are yet to be made.

use super::{Client, ClientError};
use crate::protocol::{Admin, ExpectedFile, MAX_PACKET_BYTES, Request};

/// In one packet, which has a head besides.
const MAX_LIST_BYTES: usize = MAX_PACKET_BYTES - 1024;

impl Client {
    /// New files at these paths get their placements and replicas. Sent in as few packets as hold them, each durable as a whole; `goes_on` is
    /// asked before each, and false ends it. Returns whether all were sent.
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

    fn send_expected(&self, files: Vec<ExpectedFile>) -> Result<(), ClientError> {
        self.request(&Request::Admin(Admin::ExpectFiles { files }), &[]).map(drop)
    }
}
