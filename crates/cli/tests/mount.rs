//! `stripewise mount`: managed files for every program. As root with `/dev/fuse`; skipped elsewhere.

mod support;

#[path = "mount/acls.rs"]
mod acls;
#[path = "mount/asynchronous.rs"]
mod asynchronous;
#[path = "mount/bed.rs"]
mod bed;
#[path = "faults/driver.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod driver;
#[path = "mount/export.rs"]
mod export;
#[path = "mount/faults.rs"]
mod faults;
#[path = "mount/files.rs"]
mod files;
#[path = "mount/listing.rs"]
mod listing;
#[path = "mount/making.rs"]
mod making;
#[path = "mount/mapped.rs"]
mod mapped;
#[path = "mount/names.rs"]
mod names;
#[path = "mount/ordinary.rs"]
mod ordinary;
#[path = "mount/points.rs"]
mod points;
#[path = "mount/programs.rs"]
mod programs;
#[path = "mount/serving.rs"]
mod serving;
#[path = "mount/times.rs"]
mod times;
#[path = "mount/torture.rs"]
mod torture;
#[path = "mount/users.rs"]
mod users;
