//! Plans made by hand, so that a test says where its file goes.

use super::Place;
use serde_json::Value;

pub(crate) const SIZE: usize = 48 << 20;

/// A plan of one file on server 0, as `stripewise plan` writes them.
pub(crate) fn plan(place: &Place, name: &str) -> Value {
    let toml = String::from_utf8(place.read("cluster.toml")).unwrap();
    let value = |key: &str| {
        let line = toml.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")).map(str::to_owned));
        line.unwrap().trim_matches('"').to_owned()
    };
    let servers: Vec<(String, String)> = toml
        .split("[[server]]")
        .skip(1)
        .map(|server| {
            let of = |key: &str| {
                let line = server.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))).unwrap();
                line.trim_matches('"').to_owned()
            };
            (of("name"), of("class"))
        })
        .collect();
    let none = serde_json::json!({"requests": 0, "bytes": 0, "time_s": 0.0, "mb_per_s": 0.0, "spread": 0.0});
    let loads = vec![0.0; servers.len()];
    let predicted = serde_json::json!({"read": null, "write": null, "total": none, "server_load_s": loads});
    let gain = serde_json::json!({"low": 0.1, "expected": 0.2, "high": 0.3});
    let path = place.path(name).canonicalize().unwrap_or_else(|_| place.path(name));
    let placement = serde_json::json!({"region_size": value("region"), "layouts": [[[0, 1 << 20]]], "runs": [], "beyond": 0, "fallback": 0});
    serde_json::json!({
        "version": 1, "cluster": value("id"),
        "made_from": {"cluster_sha256": "", "profile_sha256": "", "trace_sha256": ""},
        "key": {"application": "app", "processes": 1}, "policy": "h2dp",
        "options": {"step": "4KiB", "seed": 1, "benefit_per_ssd_byte": false, "subtract_move_cost": false, "exact": false, "worth_runs": 10.0},
        "concurrency": {"processes": 1, "processes_per_node": 1}, "emulated": true,
        "verdict": {"apply": true, "reason": "apply: as a test", "place_bytes": 0, "place_s": 0.0, "move_bytes": 0, "move_s": 0.0, "saved_s": 1.0},
        "predicted": predicted, "default": predicted,
        "gain": {"read": null, "write": null, "total": gain},
        "servers": servers.iter().map(|(name, class)| serde_json::json!({"name": name, "class": class, "room_bytes": null, "used_bytes": 0})).collect::<Vec<_>>(),
        "files": [{"path": path, "pattern": path, "size_bytes": SIZE,
            "windows": [{"start_s": 0.0, "end_s": 600.0, "moves": [], "placement": placement}]}],
        "notes": []
    })
}
