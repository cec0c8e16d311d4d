//! `beegfs target list` of BeeGFS 8 and `beegfs-ctl --listtargets` of BeeGFS 7.

use super::super::found::{Ask, Found, FoundTarget, describe};
use super::NATIVE;
use crate::site::DefaultLayout;
use std::path::Path;

const LIST_8: [&str; 8] = ["beegfs", "target", "list", "--node-type", "storage", "--state", "--capacity", "--raw"];
const LIST_7: [&str; 5] = ["beegfs-ctl", "--listtargets", "--nodetype=storage", "--storagepools", "--spaceinfo"];
/// Answers also where a server does not, without sizes.
const STATE_7: [&str; 5] = ["beegfs-ctl", "--listtargets", "--nodetype=storage", "--storagepools", "--state"];
/// What versions call a target that answers.
const ONLINE: &str = "Online";

pub(super) fn detect(ask: &mut Ask<'_>, mount: &Path) -> Result<Found, String> {
    let targets = match ask(&LIST_8) {
        Ok(text) => of_8(&text),
        Err(of_8) => match ask(&LIST_7) {
            Ok(text) => of_7(&text),
            Err(of_7) => state_of_7(&ask(&STATE_7).map_err(|_| format!("{of_8}; {of_7}"))?),
        },
    };
    describe(&NATIVE.fs, mount, targets, Vec::new(), DefaultLayout::default())
}

fn unusable(reachability: &str) -> Option<String> {
    (reachability != ONLINE).then(|| format!("is {}", reachability.to_lowercase()))
}

/// Columns with two spaces or more between them, by the names of the first line.
fn of_8(text: &str) -> Vec<FoundTarget> {
    let cells = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let mut lines = text.lines().skip_while(|line| !line.contains("ALIAS")).map(cells);
    let Some(names) = lines.next() else { return Vec::new() };
    let column = |wanted: &str| names.iter().position(|name| name == wanted);
    let (id, alias, pool, free) = (column("ID"), column("ALIAS"), column("STORAGE_POOL"), column("SPACE_FREE"));
    let state = column("REACHABILITY");
    let number = |cell: &str| cell.rsplit(':').next().and_then(|digits| digits.parse::<u32>().ok());
    let target = |cells: Vec<String>| {
        let cell = |column: Option<usize>| cells.get(column?).map(String::as_str);
        Some(FoundTarget {
            number: Some(number(cell(id)?)?),
            name: cell(alias)?.to_owned(),
            pool: cell(pool).map(|pool| number(pool).map_or_else(|| pool.to_owned(), |id| id.to_string())),
            free_bytes: cell(free).and_then(|free| free.trim_end_matches('B').parse().ok()),
            unusable: cell(state).and_then(unusable),
            ..FoundTarget::default()
        })
    };
    lines.filter_map(target).collect()
}

/// `101 1 91540.4GiB 73856.4GiB 81% ... 3`: the target, its pool and what is free.
fn of_7(text: &str) -> Vec<FoundTarget> {
    let mut lines = text.lines();
    let has_pools = lines.by_ref().find(|line| line.contains("TargetID")).is_some_and(|head| head.contains("St. Pool"));
    let target = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut sizes = words.iter().filter_map(|word| word.strip_suffix("GiB")?.parse::<f64>().ok());
        let free = sizes.nth(1);
        let pool = has_pools.then(|| words.get(1).copied()).flatten();
        Some(FoundTarget {
            free_bytes: free.map(|gib| (gib * (1u64 << 30) as f64) as u64),
            ..numbered(words.first()?.parse().ok()?, pool)
        })
    };
    lines.filter_map(target).collect()
}

/// `101 Online Good 1 1`: the target, whether it answers, its consistency, its pool and its node.
fn state_of_7(text: &str) -> Vec<FoundTarget> {
    let target = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [number, reachability, _, pool, _] = words[..] else { return None };
        Some(FoundTarget { unusable: unusable(reachability), ..numbered(number.parse().ok()?, Some(pool)) })
    };
    text.lines().filter_map(target).collect()
}

/// Targets of BeeGFS 7 have numbers alone.
fn numbered(number: u32, pool: Option<&str>) -> FoundTarget {
    let (name, pool) = (format!("target{number}"), pool.map(str::to_owned));
    FoundTarget { name, number: Some(number), pool, ..FoundTarget::default() }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{detected, text_of};

    fn check(text: &str, names: [&str; 3]) {
        let site = detected("beegfs", text);
        assert_eq!(site.targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>(), names);
        assert_eq!(
            site.targets.iter().map(|target| target.number).collect::<Vec<_>>(),
            [Some(101), Some(102), Some(201)]
        );
        assert_eq!(
            site.pools.iter().map(|pool| (pool.name.as_str(), pool.targets.clone())).collect::<Vec<_>>(),
            [("1", vec![0, 1]), ("2", vec![2])]
        );
        assert_eq!(site.group(0).capacity, Some(stripewise_layout::ByteCount(8 << 40)));
    }

    #[test]
    fn targets_pools_and_space_are_found_on_7_and_8() {
        check(include_str!("fixtures/7.4.6.txt"), ["target101", "target102", "target201"]);
        check(include_str!("fixtures/8.2.2.txt"), ["big-1", "big-2", "flash"]);
    }

    #[test]
    fn a_target_that_does_not_answer_is_left_out_and_named() {
        for (fixture, known, gone) in [
            (include_str!("fixtures/7.4.6-offline.txt"), ["target101", "target102"], "target201"),
            (include_str!("fixtures/8.2.2-offline.txt"), ["big-1", "big-2"], "flash"),
        ] {
            let site = detected("beegfs", fixture);
            assert_eq!(site.targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>(), known);
            let head = text_of("beegfs", fixture);
            assert!(head.contains(gone) && head.contains("probably-offline"), "{head}");
        }
    }
}
