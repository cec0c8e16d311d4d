//! Packets between clients and the broker: of a request, what any user who reaches the socket may send.

use crate::Outcome;
use serde::{Serialize, de::DeserializeOwned};
use stripewise_layout::{Placement, RegionGeometry};
use stripewise_store::packet;
use stripewise_store::protocol::{Admin, Reply, Request};

/// Servers of the cluster that placements are checked for.
const SERVERS: usize = 4;

pub fn run_request(bytes: &[u8]) -> Outcome {
    let Some(request) = read::<Request>(bytes) else { return Outcome::Refused };
    match &request {
        Request::Admin(
            Admin::Import { placement, .. } | Admin::Manage { placement, .. } | Admin::Expect { placement, .. },
        ) => check(placement),
        Request::Admin(Admin::SetPlacement { placement, .. }) => check(placement),
        Request::Admin(Admin::ExpectFiles { files }) => files.iter().for_each(|file| check(&file.placement)),
        Request::Admin(Admin::Move { orders }) => {
            for order in orders {
                crate::layouts::check_layout(&order.layout, 1 << 20);
            }
        }
        _ => {}
    }
    Outcome::Read
}

pub fn run_reply(bytes: &[u8]) -> Outcome {
    let Some(reply) = read::<Reply>(bytes) else { return Outcome::Refused };
    match &reply {
        Reply::Placement { placement } => check(placement),
        Reply::Refused(refusal) => assert!(refusal.to_string().len() < 4096 + 2 * bytes.len()),
        Reply::Welcome { servers, .. } => servers.iter().for_each(|server| {
            let _ = server.read_cost.ns(u64::MAX);
        }),
        Reply::Files { files, .. } => files.iter().filter(|file| file.region_bytes > 0).for_each(|file| {
            let _ = RegionGeometry::new(file.region_bytes).count_for(file.size_bytes);
        }),
        _ => {}
    }
    Outcome::Read
}

/// The message, if the packet is one. Compared as bytes: a number may be none.
fn read<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let message: T = match packet::decode(bytes) {
        Ok(message) => message,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    // A list may be shorter in bytes as it came than as it is sent: stripes of size 0 are left out, numbers may be written long.
    let sent = packet::encode(&message).ok()?;
    let again: T = packet::decode(&sent).expect("what was sent is received");
    assert_eq!(packet::encode(&again).expect("it was sent before"), sent);
    Some(message)
}

fn check(placement: &Placement) {
    if placement.check(SERVERS).is_ok() {
        crate::layouts::check_placement(placement, SERVERS);
    }
}
