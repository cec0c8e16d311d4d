//! `mfscli -SCS` of MooseFS 3 and 4.

use super::super::found::{Ask, Found, FoundTarget, describe};
use super::NATIVE;
use crate::site::DefaultLayout;
use std::path::Path;

/// Prints columns that `|` separates.
const LIST: [&str; 6] = ["mfscli", "-n", "-p", "-s", "|", "-SCS"];

pub(super) fn detect(ask: &mut Ask<'_>, mount: &Path) -> Result<Found, String> {
    let targets = ask(&LIST)?.lines().filter_map(chunk_server).collect();
    let mut found = describe(&NATIVE.fs, mount, targets, Vec::new(), DefaultLayout::default())?;
    if let Some(label) = found.file.targets.iter().find_map(|group| group.pool.as_ref()) {
        let said = "pools stand as labels, of which each keeps one copy";
        found.remarks.push(format!("{said}: write as many as the site keeps, for example pool = \"2{label}\" for two"));
    }
    Ok(found)
}

/// `TITLE:|ADDRESS|PORT|ID|LABELS|VERSION|QUEUE|MAINTENANCE|CHUNKS|USED|TOTAL|...`, from MooseFS 4 on with the queue's state behind it.
fn chunk_server(line: &str) -> Option<FoundTarget> {
    let (_, rest) = line.split_once(":|")?;
    let cells: Vec<&str> = rest.split('|').collect();
    let [address, port, _, labels, _, ..] = cells[..] else { return None };
    let state = cells.iter().position(|cell| cell.starts_with("maintenance"))?;
    let size = |column: usize| cells.get(state + column)?.parse::<u64>().ok();
    let labels: String = labels.chars().filter(char::is_ascii_uppercase).collect();
    port.parse::<u16>().ok()?;
    Some(FoundTarget {
        name: format!("{address}-{port}").replace(|c: char| !(c.is_ascii_alphanumeric() || ".-_".contains(c)), "-"),
        // Labels side by side are servers that have all of them.
        pool: (!labels.is_empty()).then_some(labels),
        free_bytes: size(2).zip(size(3)).map(|(used, total)| total.saturating_sub(used)),
        ..FoundTarget::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{detected, text_of};

    #[test]
    fn a_server_without_a_label_is_in_no_pool() {
        let site = detected("moosefs", include_str!("fixtures/3.0.116.txt"));
        assert_eq!((site.targets.len(), site.pools.len()), (1, 0));
        assert_eq!(site.targets[0].name, "10.206.16.3-9422");
        // Of 10,349,711,360 bytes.
        assert_eq!(site.group(0).capacity, Some(stripewise_layout::ByteCount(8 << 30)));
    }

    #[test]
    fn chunk_servers_labels_and_space_are_found_on_3_and_4() {
        for text in [include_str!("fixtures/3.0.117.txt"), include_str!("fixtures/4.59.txt")] {
            let site = detected("moosefs", text);
            let pools: Vec<(&str, usize)> =
                site.pools.iter().map(|pool| (pool.name.as_str(), pool.targets.len())).collect();
            assert_eq!(pools, [("A", 1), ("B", 1), ("C", 1), ("D", 1)]);
            assert!(text_of("moosefs", text).contains("for example pool = \"2A\" for two"));
            assert_eq!(site.targets[2].name, "10.91.7.1-29502");
            assert_eq!(site.group(0).capacity, Some(stripewise_layout::ByteCount(32 << 30)));
        }
    }
}
