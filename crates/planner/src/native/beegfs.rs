//! BeeGFS 7 and 8: one pattern a file, chunks of one size on targets that are named.
//!
//! **What it can express.** Any targets in any order, each once, and a chunk that is a power of two from 64 KiB on. A file gets its pattern when it is made, so
//! an existing one is copied. A directory's pattern names a pool and a number of targets, not which.
//!
//! Sources: `beegfs-ctl --createfile --help` of BeeGFS 7 (`ModeCreateFile.cpp`), `beegfs entry create file --help` of BeeGFS 8 (`create.go`, `flags.go`), and
//! "Striping" and "Storage Pools" of the BeeGFS documentation 7.2 to 8.2.

mod detect;

use super::fit::{Candidate, Refusal, Wanted, even, mean, nearest_power};
use super::layout::NativeLayout;
use super::script::{REPLACE, Script, Writer, name_of};
use super::{FittedFile, Native};
use crate::file_system::{FileSystem, Naming};
use crate::site::{Pool, Site};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use stripewise_layout::ByteCount;

pub(super) static NATIVE: Native = Native {
    fs: FileSystem {
        name: "beegfs",
        title: "BeeGFS",
        target: "storage target",
        radix: 10,
        naming: Naming::Numbers,
        stripe_size: ByteCount(512 << 10),
        stripe_count: 4,
        pool_name_bytes: None,
        layout_bytes: None,
    },
    example: include_str!("beegfs/site.toml"),
    expresses: "one set of targets a file, with one chunk size: a power of two from 64KiB on",
    loses: "differences between a file's regions, and between its targets' stripes",
    mirrors: None,
    lacks: |_| None,
    remarks,
    objects: None,
    fit,
    script,
    detect: detect::detect,
    #[cfg(test)]
    read_back: grammar::read_back,
};

const MIN_CHUNK: u64 = 64 << 10;
const MAX_CHUNK: u64 = 1 << 31;

const PRELUDE: &str = r#"# set_layout FILE TARGETS COUNT CHUNK: a new file with that pattern, or a copy of an existing one in its place.
set_layout() {
    [ ! -e "$1" ] || check "$1"
    name_new "$1"
    make "$new" "$2" "$3" "$4"
    if [ -e "$1" ]; then
        replace "$1" "$new"
    else
        settle "$new" "$1"
    fi
}

# As BeeGFS 8 or BeeGFS 7 has it. The latter takes no `=` in a path: so from within the directory, and by a name that has none.
make() {
    if command -v beegfs >/dev/null; then
        beegfs entry create file --targets="$2" --num-targets="$3" --chunk-size="$4" --force "$1"
    else
        (cd "${1%/*}/" && beegfs-ctl --createfile --pattern=raid0 --targets="$2" --numtargets="$3" --chunksize="$4" --force "./${1##*/}")
    fi
}

# directory DIRECTORY POOL COUNT CHUNK: new files of it get that pattern, on targets of the pool that BeeGFS chooses. It is for whatever anybody makes
# there, so it is set only by `sh layout.sh directories`.
wanted=${1-}
directory() {
    [ "$wanted" = directories ] || return 0
    if command -v beegfs >/dev/null; then
        beegfs entry set --pool="$2" --num-targets="$3" --chunk-size="$4" "$1"
    else
        (cd "$1" && beegfs-ctl --setpattern --pattern=raid0 --storagepoolid="$2" --numtargets="$3" --chunksize="$4" .)
    fi || missed "$1"
}
"#;

/// What new files of a directory shall get.
#[derive(PartialEq, Eq)]
struct Pattern<'s> {
    pool: &'s str,
    count: usize,
    chunk: u64,
}

/// Directories whose files here are all on as many targets of one pool, in chunks of one size.
fn directories<'s>(site: &'s Site, files: &[FittedFile]) -> BTreeMap<Vec<u8>, Pattern<'s>> {
    let mut found: BTreeMap<Vec<u8>, Option<Pattern<'s>>> = BTreeMap::new();
    for file in files {
        let Some(mut name) = name_of(&file.path) else { continue };
        name.truncate(name.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
        let turns = &file.layout.parts[0].turns;
        let holds = |pool: &&Pool| turns.iter().all(|turn| pool.targets.contains(&turn.target));
        let least = site.pools.iter().filter(holds).min_by_key(|pool| pool.targets.len());
        let pattern = least.map(|pool| Pattern { pool: &pool.name, count: turns.len(), chunk: turns[0].bytes });
        match found.entry(name) {
            Entry::Vacant(entry) => _ = entry.insert(pattern),
            Entry::Occupied(mut entry) if *entry.get() != pattern => _ = entry.insert(None),
            Entry::Occupied(_) => {}
        }
    }
    let wanted = |(name, pattern): (Vec<u8>, Option<Pattern<'s>>)| (!name.is_empty()).then_some((name, pattern?));
    found.into_iter().filter_map(wanted).collect()
}

fn remarks(site: &Site, files: &[FittedFile]) -> Vec<String> {
    let remark = |count| {
        format!(
            "new files of {count} of the directories can have the pattern of these files: `sh layout.sh directories` sets it; which targets of the pool a new file is on, BeeGFS chooses"
        )
    };
    match directories(site, files).len() {
        0 => Vec::new(),
        count => vec![remark(count)],
    }
}

fn fit(site: &Site, wanted: &Wanted<'_>) -> Result<NativeLayout, Refusal> {
    let layouts = wanted.candidates(site).into_iter().flat_map(|Candidate { targets, stripes }| {
        let chunk = nearest_power(mean(&stripes), MIN_CHUNK, MAX_CHUNK);
        let chunks = [chunk / 2, chunk, chunk * 2].map(|chunk| chunk.clamp(MIN_CHUNK, MAX_CHUNK));
        chunks.map(|chunk| NativeLayout::whole(even(&targets, chunk), None))
    });
    wanted.nearest(site, layouts.collect())
}

fn script(site: &Site, files: &[FittedFile]) -> Script {
    let mut writer = Writer::new(site.fs.title, files.len(), &format!("{REPLACE}\n{PRELUDE}"));
    for file in files {
        let part = &file.layout.parts[0];
        let number = |target: usize| site.targets[target].number.expect("targets of BeeGFS are numbered").to_string();
        let targets: Vec<String> = part.turns.iter().map(|turn| number(turn.target)).collect();
        let words = [targets.join(","), targets.len().to_string(), part.turns[0].bytes.to_string()];
        writer.of_file("layout", &file.path, &words);
    }
    for (name, Pattern { pool, count, chunk }) in directories(site, files) {
        let (count, chunk) = (count.to_string(), chunk.to_string());
        writer.command([b"directory".as_slice(), &name, pool.as_bytes(), count.as_bytes(), chunk.as_bytes()]);
    }
    writer.finish()
}

#[cfg(test)]
mod grammar;
