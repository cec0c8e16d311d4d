//! The data path end to end: client, broker and servers, in one process and in many.

#[path = "striped/broker_together.rs"]
mod broker_together;
#[allow(dead_code, reason = "shared with another test")]
#[path = "rados/ceph.rs"]
mod ceph;
#[path = "striped/damaged.rs"]
mod damaged;
#[path = "striped/deposed.rs"]
mod deposed;
#[path = "striped/devices.rs"]
mod devices;
#[path = "striped/durable_writes.rs"]
mod durable_writes;
#[path = "striped/every_call.rs"]
mod every_call;
#[path = "striped/faults.rs"]
mod faults;
#[path = "striped/forks.rs"]
mod forks;
#[path = "striped/gate.rs"]
mod gate;
#[allow(unreachable_pub, dead_code, reason = "shared with another test")]
#[path = "hooked/server.rs"]
mod hooked;
#[path = "striped/killed.rs"]
mod killed;
#[path = "striped/logs_failing.rs"]
mod logs_failing;
#[path = "striped/logs_wanted.rs"]
mod logs_wanted;
#[path = "striped/model.rs"]
mod model;
#[path = "striped/mounts.rs"]
mod mounts;
#[path = "striped/moves.rs"]
mod moves;
#[path = "striped/moves_allocated.rs"]
mod moves_allocated;
#[path = "striped/moves_aside.rs"]
mod moves_aside;
#[path = "striped/moves_auto.rs"]
mod moves_auto;
#[path = "striped/moves_ended.rs"]
mod moves_ended;
#[path = "striped/moves_killed.rs"]
mod moves_killed;
#[path = "striped/narrow.rs"]
mod narrow;
#[path = "striped/observed.rs"]
mod observed;
#[path = "striped/occupied.rs"]
mod occupied;
#[path = "striped/on_ceph.rs"]
mod on_ceph;
#[path = "striped/power.rs"]
mod power;
#[path = "striped/power_lost.rs"]
mod power_lost;
#[path = "striped/processes.rs"]
mod processes;
#[path = "striped/recovered.rs"]
mod recovered;
#[path = "striped/removed.rs"]
mod removed;
#[path = "striped/repeated.rs"]
mod repeated;
#[path = "striped/replicas.rs"]
mod replicas;
#[path = "striped/replicas_killed.rs"]
mod replicas_killed;
#[path = "striped/replicas_leave.rs"]
mod replicas_leave;
#[path = "striped/replicas_loaded.rs"]
mod replicas_loaded;
#[path = "striped/servers_failing.rs"]
mod servers_failing;
#[path = "striped/shared.rs"]
mod shared;
#[path = "striped/table_damaged.rs"]
mod table_damaged;
#[path = "striped/taken_in.rs"]
mod taken_in;
#[path = "striped/together.rs"]
mod together;
#[path = "striped/watched.rs"]
mod watched;
#[path = "striped/world.rs"]
mod world;

/// Not a test of its own: what the other tests start this executable as.
#[test]
fn role() {
    let Ok(role) = std::env::var("STRIPED_ROLE") else { return };
    let world = world::World::at(std::path::Path::new(&std::env::var("STRIPED_ROOT").unwrap()));
    let arguments: Vec<String> =
        std::env::var("STRIPED_ARGUMENTS").unwrap().split_whitespace().map(str::to_owned).collect();
    match role.as_str() {
        "broker" => processes::serve(&world),
        "broker-that-leaves-logs" => processes::serve_and_leave_logs(&world),
        "dying-mover" => recovered::die_before_the_commit(&world, &arguments),
        "writer" => processes::write_own_bytes(&world, &arguments),
        "appender" => processes::append_records(&world, &arguments),
        "worker" => killed::work(&world, &arguments),
        "block-writer" => servers_failing::work(&world, &arguments),
        "troubled-broker" => servers_failing::serve(&world),
        "move-user" => moves::use_while_regions_move(&world, &arguments),
        "dying-broker" => moves_killed::serve_and_die(&world, &arguments),
        "held-reader" => replicas_loaded::hold_a_read(&world),
        "staying-writer" => damaged::write_and_stay(&world, &arguments),
        "stopping-writer" => moves_killed::stop_in_a_write(&world),
        "stopping-reader" => moves_killed::stop_in_a_read(&world),
        "gate-writer" => gate::write_counted_blocks(&world, &arguments),
        "dying" => faults::die_in_a_write(&world, &arguments),
        "unsyncable" => faults::sync_a_stub_that_cannot_be_synced(&world),
        "crowded" => faults::use_without_free_descriptors(&world),
        "accessor" => observed::access(&world, &arguments),
        "stranger" => faults::use_without_permission(&world, &arguments),
        "forker" => forks::fork_and_use(&world, &arguments),
        other => panic!("no role {other}"),
    }
}
