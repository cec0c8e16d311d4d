//! What the monitors, and the OSDs themselves, say of a pool: where it lies and what it can take.

use super::Connection;
use super::error::RadosError;
use rustix::io::Errno;

fn ask(connection: &Connection, command: &serde_json::Value, pool: &str) -> Result<serde_json::Value, RadosError> {
    let answer = connection.command(&command.to_string())?;
    serde_json::from_slice(&answer).map_err(|error| RadosError::Answer {
        about: format!("pool {pool}"),
        action: "a command of the monitors",
        what: error.to_string(),
    })
}

/// What is taken to be free where nobody says it: more than is asked for. A pool that is full says so itself.
const UNKNOWN_BYTES: u64 = 1 << 50;

/// A number for the cluster and the pool's rule of placement: pools with one number fill the same devices.
pub(super) fn sharing_of(connection: &Connection, pool: &str) -> Result<u64, RadosError> {
    let command = serde_json::json!({"prefix": "osd pool get", "pool": pool, "var": "crush_rule", "format": "json"});
    let answer = ask(connection, &command, pool)?;
    let rule = answer["crush_rule"].as_str().unwrap_or_default();
    let text = format!("{}/{rule}", connection.fsid()?);
    Ok(twox_hash::XxHash3_64::oneshot(text.as_bytes()))
}

/// The OSDs that serve an object, whether it is there or not.
pub(super) fn osds_of(
    connection: &Connection,
    pool: &str,
    object: &str,
    namespace: &str,
) -> Result<Vec<i32>, RadosError> {
    let command = serde_json::json!({
        "prefix": "osd map", "pool": pool, "object": object, "nspace": namespace, "format": "json",
    });
    let map = ask(connection, &command, pool)?;
    let acting = map["acting"].as_array().map(Vec::as_slice).unwrap_or_default();
    let number = |osd: &serde_json::Value| osd.as_i64().and_then(|osd| i32::try_from(osd).ok());
    acting.iter().map(number).collect::<Option<Vec<i32>>>().ok_or_else(|| RadosError::Answer {
        about: format!("pool {pool}"),
        action: "where an object lies",
        what: "no OSD's number".to_owned(),
    })
}

/// What a pool can still take, and that with what it holds, within its quota: the managers' figures. Where none runs, what is free on the devices of one placement group, less
/// what Ceph keeps free: of a pool on several devices that is less than it can take. Where the user may not ask OSDs, [`UNKNOWN_BYTES`].
pub(super) fn space_of(connection: &Connection, pool: &str) -> Result<(u64, u64), RadosError> {
    let (free, total) = space_on_devices(connection, pool)?;
    let quota = quota_of(connection, pool)?;
    Ok((free.min(quota.free_bytes), total.min(quota.total_bytes)))
}

/// What a pool's quota leaves, in bytes; `u64::MAX` without one.
struct Quota {
    free_bytes: u64,
    total_bytes: u64,
}

/// What the pool holds is the managers' figure, by which Ceph itself enforces quotas. Where none runs nothing is counted, and the whole quota is left.
fn quota_of(connection: &Connection, pool: &str) -> Result<Quota, RadosError> {
    let command = serde_json::json!({"prefix": "osd pool get-quota", "pool": pool, "format": "json"});
    let answer = match ask(connection, &command, pool) {
        // What it answers where nothing was counted.
        Err(RadosError::Os { source: Errno::NOENT, .. }) => {
            let map = ask(connection, &serde_json::json!({"prefix": "osd dump", "format": "json"}), pool)?;
            let pools = map["pools"].as_array().map(Vec::as_slice).unwrap_or_default();
            pools.iter().find(|found| found["pool_name"] == pool).cloned().unwrap_or_default()
        }
        answer => answer?,
    };
    let figure = |name: &str| answer[name].as_u64().unwrap_or_default();
    let bytes = (figure("quota_max_bytes"), figure("current_num_bytes"));
    Ok(Quota::of(bytes, (figure("quota_max_objects"), figure("current_num_objects"))))
}

impl Quota {
    /// Most and present number of bytes, then of objects; a most of 0 is none.
    fn of((most_bytes, bytes): (u64, u64), (most_objects, objects): (u64, u64)) -> Self {
        let total_bytes = if most_bytes == 0 { u64::MAX } else { most_bytes };
        let takes_no_object = most_objects > 0 && objects >= most_objects;
        let free_bytes = match (takes_no_object, most_bytes) {
            (true, _) => 0,
            (false, 0) => u64::MAX,
            (false, most) => most.saturating_sub(bytes),
        };
        Self { free_bytes, total_bytes }
    }
}

fn space_on_devices(connection: &Connection, pool: &str) -> Result<(u64, u64), RadosError> {
    let unreadable = |what: &str| RadosError::Answer {
        about: format!("pool {pool}"),
        action: "what is free",
        what: what.to_owned(),
    };
    let usage = ask(connection, &serde_json::json!({"prefix": "df", "format": "json"}), pool)?;
    if usage["stats"]["total_bytes"].as_u64().is_some_and(|total| total > 0) {
        let pools = usage["pools"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = pools.iter().find(|found| found["name"] == pool);
        let figure = |name: &str| found.and_then(|found| found["stats"][name].as_u64());
        let space = figure("max_avail").zip(figure("stored").or_else(|| figure("bytes_used")));
        let (free, held) = space.ok_or_else(|| unreadable("the pool is not listed"))?;
        return Ok((free, free.saturating_add(held)));
    }
    let ratios = ask(connection, &serde_json::json!({"prefix": "osd dump", "format": "json"}), pool)?;
    let full_ratio = ratios["full_ratio"].as_f64().unwrap_or(0.95);
    let mut least = None;
    for osd in osds_of(connection, pool, "server", "")? {
        let answer = match connection.osd_command(osd, r#"{"prefix":"perf dump","format":"json"}"#) {
            // A right that servers do not need otherwise.
            Err(RadosError::Denied { .. }) => return Ok((UNKNOWN_BYTES, UNKNOWN_BYTES)),
            answer => answer?,
        };
        let counters: serde_json::Value =
            serde_json::from_slice(&answer).map_err(|error| unreadable(&error.to_string()))?;
        let figure = |name: &str| counters["osd"][name].as_u64().ok_or_else(|| unreadable(name));
        let total = figure("stat_bytes")?;
        let kept = (total as f64 * (1.0 - full_ratio)) as u64;
        let space = (figure("stat_bytes_avail")?.saturating_sub(kept), total - kept.min(total));
        least = Some(least.map_or(space, |least: (u64, u64)| least.min(space)));
    }
    least.ok_or_else(|| unreadable("no OSD serves the pool"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_leaves_what_the_pool_does_not_hold() {
        let left = |bytes, objects| {
            let Quota { free_bytes, total_bytes } = Quota::of(bytes, objects);
            (free_bytes, total_bytes)
        };
        assert_eq!(left((0, 70), (0, 3)), (u64::MAX, u64::MAX));
        assert_eq!(left((100, 70), (0, 3)), (30, 100));
        // Ceph takes writes until it has counted, so there may be more than the quota.
        assert_eq!(left((100, 120), (0, 3)), (0, 100));
        assert_eq!(left((0, 70), (3, 3)), (0, u64::MAX));
        assert_eq!(left((100, 70), (4, 3)), (30, 100));
    }
}
