//! `beegfs target list` of BeeGFS 8 and `beegfs-ctl --listtargets` of BeeGFS 7.

use super::super::found::{Ask, Found, FoundTarget, describe};
use super::NATIVE;
use crate::site::DefaultLayout;
use std::path::Path;

const LIST_8: [&str; 7] = ["beegfs", "target", "list", "--node-type", "storage", "--capacity", "--raw"];
const LIST_7: [&str; 5] = ["beegfs-ctl", "--listtargets", "--nodetype=storage", "--storagepools", "--spaceinfo"];

pub(super) fn detect(ask: &mut Ask<'_>, mount: &Path) -> Result<Found, String> {
    let targets = match ask(&LIST_8) {
        Ok(text) => of_8(&text),
        Err(of_8) => of_7(&ask(&LIST_7).map_err(|of_7| format!("{of_8}; {of_7}"))?),
    };
    describe(&NATIVE.fs, mount, targets, Vec::new(), DefaultLayout::default())
}

/// Columns with two spaces or more between them, by the names of the first line: `ID`, `ALIAS`, `POOL` or `STORAGE_POOL`, `SFREE` or `SPACE_FREE`.
fn of_8(text: &str) -> Vec<FoundTarget> {
    let cells = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let mut lines = text.lines().skip_while(|line| !line.contains("ALIAS")).map(cells);
    let Some(names) = lines.next() else { return Vec::new() };
    let column = |wanted: &[&str]| names.iter().position(|name| wanted.contains(&name.as_str()));
    let (id, alias) = (column(&["ID"]), column(&["ALIAS"]));
    let (pool, free) = (column(&["STORAGE_POOL", "POOL"]), column(&["SPACE_FREE", "SFREE"]));
    let number = |cell: &str| cell.rsplit(':').next().and_then(|digits| digits.parse::<u32>().ok());
    let target = |cells: Vec<String>| {
        let cell = |column: Option<usize>| cells.get(column?).map(String::as_str);
        Some(FoundTarget {
            number: Some(number(cell(id)?)?),
            name: cell(alias)?.to_owned(),
            pool: cell(pool).map(|pool| number(pool).map_or_else(|| pool.to_owned(), |id| id.to_string())),
            free_bytes: cell(free).and_then(|free| free.trim_end_matches('B').parse().ok()),
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
        let number: u32 = words.first()?.parse().ok()?;
        let mut sizes = words.iter().filter_map(|word| word.strip_suffix("GiB")?.parse::<f64>().ok());
        let free = sizes.nth(1);
        Some(FoundTarget {
            name: format!("target{number}"),
            number: Some(number),
            pool: has_pools.then(|| words.get(1).map(|pool| (*pool).to_owned())).flatten(),
            free_bytes: free.map(|gib| (gib * (1u64 << 30) as f64) as u64),
            ..FoundTarget::default()
        })
    };
    lines.filter_map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::detected;

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
        assert_eq!(site.group(0).capacity, Some(stripewise_layout::ByteCount(64 << 40)));
    }

    #[test]
    fn targets_pools_and_space_are_found_on_7_and_8() {
        check(include_str!("fixtures/7.txt"), ["target101", "target102", "target201"]);
        check(include_str!("fixtures/8.2.txt"), ["target_0-6734A781-1", "target_1-6734A781-1", "fast"]);
        check(include_str!("fixtures/8.0.txt"), ["target_0-6734A781-1", "target_1-6734A781-1", "fast"]);
    }
}
