//! CephFS: one layout a file, in one pool, which can only be set while the file is empty.
//!
//! **What it can express.** A data pool, a stripe unit that is a multiple of 64 KiB, the number of objects that units go to in turn, and the size of
//! objects, a multiple of the unit. CRUSH puts each object on one of the pool's OSDs, so single OSDs are chosen only by pools that have one each.
//!
//! **Deviations.** CRUSH's own hash is not computed: predictions draw the OSDs of objects by another one, a few times.
//!
//! Sources: "File layouts" of the Ceph documentation (Pacific to Squid), `ceph_file_layout` and `CEPH_MIN_STRIPE_UNIT` of ceph_fs.h.

mod detect;

use super::drawn::Objects;
use super::fit::{Refusal, Wanted, even, mean, nearest_multiple};
use super::layout::{NativeLayout, Part};
use super::script::{NEW, REPLACE, Script, Writer};
use super::{FittedFile, Native};
use crate::file_system::{FileSystem, Naming};
use crate::site::Site;
use stripewise_layout::ByteCount;

pub(super) static NATIVE: Native = Native {
    fs: FileSystem {
        name: "cephfs",
        title: "CephFS",
        target: "OSD",
        radix: 10,
        naming: Naming::Pools,
        stripe_size: ByteCount(4 << 20),
        stripe_count: 0,
        pool_name_bytes: None,
        has_labels: false,
        has_logged_layouts: false,
        layout_bytes: None,
    },
    example: include_str!("cephfs/site.toml"),
    expresses: "one data pool a file, with a stripe unit in multiples of 64KiB",
    loses: "differences between a file's regions, single OSDs of a pool, and stripes of several sizes",
    mirrors: None,
    lacks: |site| site.lacks_pools("data pools"),
    remarks,
    objects: Some(objects),
    fit,
    script,
    detect: detect::detect,
    #[cfg(test)]
    read_back: grammar::read_back,
};

/// Stripe units are multiples of this.
const UNIT: u64 = 64 << 10;

/// Objects as CephFS makes them by default, so that there are neither too many of them nor too large ones.
const OBJECT: u64 = 4 << 20;

const PRELUDE: &str = r#"# set_layout FILE LAYOUT: a new file with that layout, or a copy of an existing one in its place. Only an empty file takes a layout.
set_layout() {
    if [ -e "$1" ] && [ ! -s "$1" ]; then
        setfattr -n ceph.file.layout -v "$2" "$1"
        return
    fi
    ask "$1"
    name_new "$1"
    : > "$new"
    setfattr -n ceph.file.layout -v "$2" "$new"
    finish "$1"
}
"#;

fn fit(site: &Site, wanted: &Wanted<'_>) -> Result<NativeLayout, Refusal> {
    let sizes: Vec<u64> = wanted.candidates(site).iter().map(|candidate| mean(&candidate.stripes)).collect();
    let layouts = site.pools.iter().flat_map(|pool| {
        // On one OSD, units of several objects are no different from one object after the other.
        let units: Vec<u64> = match pool.targets.len() {
            1 => vec![OBJECT],
            _ => sizes
                .iter()
                .map(|size| nearest_multiple(*size, UNIT).min(u64::from(u32::MAX) / UNIT * UNIT))
                .chain([OBJECT])
                .collect(),
        };
        units.into_iter().map(|unit| NativeLayout::whole(even(&pool.targets, unit), Some(pool.name.clone())))
    });
    wanted.nearest(site, layouts.collect())
}

/// The pool says how many copies there are, and one on one OSD has one.
fn remarks(site: &Site, files: &[FittedFile]) -> Vec<String> {
    let has_one_copy = |file: &&FittedFile| {
        let pool = site.pools.iter().find(|pool| file.layout.parts[0].pool.as_ref() == Some(&pool.name));
        pool.is_some_and(|pool| pool.targets.len() == 1 || pool.copies == Some(1))
    };
    match files.iter().filter(has_one_copy).count() {
        0 => Vec::new(),
        count => vec![format!(
            "{count} of the files come into pools that keep one copy of the data: take files that shall keep several out of the script"
        )],
    }
}

fn objects(part: &Part) -> Objects {
    let unit_bytes = part.turns[0].bytes;
    // A unit of whole objects needs no further objects in turn.
    if unit_bytes < OBJECT {
        Objects { unit_bytes, turns: part.turns.len() as u64, object_bytes: OBJECT.div_ceil(unit_bytes) * unit_bytes }
    } else {
        Objects::in_order(unit_bytes)
    }
}

fn script(site: &Site, files: &[FittedFile]) -> Script {
    let mut writer = Writer::new(site.fs.title, files.len(), &format!("{NEW}\n{REPLACE}\n{PRELUDE}"));
    for file in files {
        let part = &file.layout.parts[0];
        let Objects { unit_bytes: unit, turns: count, object_bytes: object } = objects(part);
        let pool = part.pool.as_ref().expect("layouts of CephFS have a pool");
        let value = format!("stripe_unit={unit} stripe_count={count} object_size={object} pool={pool}");
        writer.of_file("layout", &file.path, &[value]);
    }
    writer.finish()
}

#[cfg(test)]
mod grammar;
