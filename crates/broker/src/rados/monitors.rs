//! What the monitors, and the OSDs themselves, say of a pool: where it lies and what it can take.

use super::Connection;
use super::error::RadosError;

fn ask(connection: &Connection, command: &serde_json::Value, pool: &str) -> Result<serde_json::Value, RadosError> {
    let answer = connection.command(&command.to_string())?;
    serde_json::from_slice(&answer).map_err(|error| RadosError::Answer {
        about: format!("pool {pool}"),
        action: "a command of the monitors",
        what: error.to_string(),
    })
}

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

/// What a pool can still take, and that with what it holds: the managers' figures. Where none runs, what is free on the devices of one placement group, less
/// what Ceph keeps free: of a pool on several devices that is less than it can take.
pub(super) fn space_of(connection: &Connection, pool: &str) -> Result<(u64, u64), RadosError> {
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
        let answer = connection.osd_command(osd, r#"{"prefix":"perf dump","format":"json"}"#)?;
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
