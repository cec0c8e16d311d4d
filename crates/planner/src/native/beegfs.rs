//! BeeGFS 7 and 8: one pattern a file, chunks of one size on targets that are named.
//!
//! **What it can express.** Any targets, each once, in any order on 7 (the command of 8 keeps none), and a chunk that is a power of two from 64 KiB on. A file gets its pattern when it is made, so
//! an existing one is copied. A directory's pattern names a pool and a number of targets, not which. Named targets have one copy of each chunk, so what has
//! buddy mirroring is left as it is.
//!
//! Sources: `--help` of `beegfs-ctl --createfile` and `--getentryinfo` of BeeGFS 7 (`ModeCreateFile.cpp`, `ModeGetEntryInfo.cpp`), of `beegfs entry create
//! file` and `beegfs entry info` of BeeGFS 8 (`create.go`, `info.go`, `flags.go`), and
//! "Striping" and "Storage Pools" of the BeeGFS documentation 7.2 to 8.2.

mod detect;

use super::fit::{Candidate, Refusal, Wanted, even, mean, nearest_power};
use super::layout::NativeLayout;
use super::script::{NEW, REPLACE, Script, Writer, name_of};
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
        has_labels: false,
        has_logged_layouts: false,
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
    ask "$1"
    if [ -n "$exists" ]; then
        refuse_mirrored "$1"
        mode=0600
    else
        refuse_mirrored "${1%/*}/"
        mode=0644
    fi
    name_new "$1"
    make "$new" "$mode" "$2" "$3" "$4"
    finish "$1"
}

# Refuses a file or directory with buddy mirroring: on targets that are named, data has one copy.
refuse_mirrored() {
    info=$(entry_info "$1") || fail "BeeGFS does not say whether $1 has buddy mirroring: left as it was"
    case $info in
        *'+ Type: RAID0'*) ;;
        *'+ Type: '*) fail "$1 has buddy mirroring, which this layout would take away: left as it was; take it out of the script" ;;
        *) fail "BeeGFS does not say which pattern $1 has: left as it was" ;;
    esac
}

# As BeeGFS 8 or BeeGFS 7 has it. The latter takes no `=` in a path and drops blanks at its end, unless it reads the path.
entry_info() {
    if command -v beegfs >/dev/null; then
        beegfs entry info --retro "$1"
        return
    fi
    case $1 in
        *=* | *[[:space:]]) printf '%s\0' "$1" | beegfs-ctl --getentryinfo --null - ;;
        *) beegfs-ctl --getentryinfo "$1" ;;
    esac
}

# make FILE MODE TARGETS COUNT CHUNK. BeeGFS 7 is called from within the directory, and with a name that has no `=`.
make() {
    if command -v beegfs >/dev/null; then
        beegfs entry create file --permissions="$2" --targets="$3" --num-targets="$4" --chunk-size="$5" --force "$1"
        return
    fi
    (cd "${1%/*}/" && beegfs-ctl --createfile --pattern=raid0 --access="$2" --targets="$3" --numtargets="$4" --chunksize="$5" --force "./${1##*/}")
}

# directory DIRECTORY POOL COUNT CHUNK: new files of it get that pattern, on targets of the pool that BeeGFS chooses. It is for whatever anybody makes
# there, so it is set only by `sh layout.sh directories`.
wanted=${1-}
directory() {
    [ "$wanted" = directories ] || return 0
    (
        set -e
        refuse_mirrored "$1"
        if command -v beegfs >/dev/null; then
            beegfs entry set --pool="$2" --num-targets="$3" --chunk-size="$4" "$1"
        else
            cd "$1"
            beegfs-ctl --setpattern --pattern=raid0 --storagepoolid="$2" --numtargets="$3" --chunksize="$4" .
        fi
    )
    [ "$?" = 0 ] || missed "$1"
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
    let mirrored = "files and directories with buddy mirroring are left as they are, since data on targets that are named has one copy".to_owned();
    match directories(site, files).len() {
        0 => vec![mirrored],
        count => vec![remark(count), mirrored],
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
    let mut writer = Writer::new(site.fs.title, files.len(), &format!("{NEW}\n{REPLACE}\n{PRELUDE}"));
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
