//! `ceph osd tree`, `ceph osd df`, `ceph fs ls` and the pools' CRUSH rules, as JSON, of Ceph 16 to 19.

use super::super::found::{Ask, Found, FoundTarget, describe};
use super::NATIVE;
use crate::site::{DefaultLayout, PoolOf};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use stripewise_layout::ServerClass;

pub(super) fn detect(ask: &mut Ask<'_>, mount: &Path) -> Result<Found, String> {
    let mut json = |words: &[&str]| -> Result<Value, String> {
        let command: Vec<&str> = std::iter::once("ceph").chain(words.iter().copied()).chain(["-f", "json"]).collect();
        let text = ask(&command)?;
        serde_json::from_str(text.trim()).map_err(|error| format!("`{}` prints no JSON: {error}", command.join(" ")))
    };
    let (tree, df) = (json(&["osd", "tree"])?, json(&["osd", "df"])?);
    let (file_systems, pools, rules) =
        (json(&["fs", "ls"])?, json(&["osd", "pool", "ls", "detail"])?, json(&["osd", "crush", "rule", "dump"])?);
    let tree = Tree::new(&tree);
    let copies: BTreeMap<&str, u64> =
        array(&pools, "").map(|pool| (text(pool, "pool_name"), number(pool, "size").unwrap_or(1).max(1))).collect();
    let rule_of = |name: &str| {
        let pool = array(&pools, "").find(|pool| text(pool, "pool_name") == name)?;
        let id = number(pool, "crush_rule")?;
        array(&rules, "").find(|rule| number(rule, "rule_id") == Some(id))
    };
    // One file system is mounted; of several, all pools are listed.
    let data: Vec<&str> =
        array(&file_systems, "").flat_map(|fs| array(fs, "data_pools")).filter_map(Value::as_str).collect();
    let osds_of = |pool: &&str| -> Vec<i64> {
        let steps = rule_of(pool).into_iter().flat_map(|rule| array(rule, "steps"));
        let taken = steps.filter(|step| text(step, "op") == "take").map(|step| text(step, "item_name"));
        let mut osds: Vec<i64> = taken.flat_map(|item| tree.osds(item)).collect();
        osds.sort_unstable();
        osds.dedup();
        osds
    };
    let most_copies = data.iter().filter_map(|pool| copies.get(pool)).max().copied().unwrap_or(1);
    let free: BTreeMap<i64, u64> = array(&df, "nodes")
        .filter_map(|node| Some((node.get("id")?.as_i64()?, (number(node, "kb_avail")? << 10) / most_copies)))
        .collect();
    let targets: Vec<FoundTarget> = tree
        .osds
        .iter()
        .map(|(id, class)| FoundTarget {
            name: format!("osd.{id}"),
            class: match class.as_str() {
                "hdd" => Some(ServerClass::Hdd),
                "ssd" | "nvme" => Some(ServerClass::Ssd),
                _ => None,
            },
            free_bytes: free.get(id).copied(),
            ..FoundTarget::default()
        })
        .collect();
    let of = |pool: &&str| PoolOf {
        name: (*pool).to_owned(),
        targets: osds_of(pool).into_iter().map(|id| format!("osd.{id}")).collect(),
    };
    let pools: Vec<PoolOf> = data.iter().map(of).filter(|pool| !pool.targets.is_empty()).collect();
    let default = DefaultLayout { pool: pools.first().map(|pool| pool.name.clone()), ..DefaultLayout::default() };
    describe(&NATIVE.fs, mount, targets, pools, default)
}

/// Items of an array, or of the array under a key.
fn array<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    let value = if key.is_empty() { Some(value) } else { value.get(key) };
    value.and_then(Value::as_array).into_iter().flatten()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, key: &str) -> Option<u64> {
    value.get(key).and_then(Value::as_u64)
}

/// Buckets and OSDs of CRUSH.
struct Tree {
    /// By id, with their device classes.
    osds: BTreeMap<i64, String>,
    /// Ids by name.
    ids: BTreeMap<String, i64>,
    children: BTreeMap<i64, Vec<i64>>,
}

impl Tree {
    fn new(tree: &Value) -> Self {
        let mut found = Self { osds: BTreeMap::new(), ids: BTreeMap::new(), children: BTreeMap::new() };
        for node in array(tree, "nodes").chain(array(tree, "stray")) {
            let Some(id) = node.get("id").and_then(Value::as_i64) else { continue };
            found.ids.insert(text(node, "name").to_owned(), id);
            found.children.insert(id, array(node, "children").filter_map(Value::as_i64).collect());
            if text(node, "type") == "osd" {
                found.osds.insert(id, text(node, "device_class").to_owned());
            }
        }
        found
    }

    /// OSDs below what a rule takes: a bucket, or the OSDs of a class in it, `default~ssd`.
    fn osds(&self, item: &str) -> Vec<i64> {
        let (bucket, class) = item.split_once('~').map_or((item, None), |(bucket, class)| (bucket, Some(class)));
        let mut open: Vec<i64> = self.ids.get(bucket).copied().into_iter().collect();
        let mut osds = Vec::new();
        // A tree has fewer nodes than this has steps.
        for _ in 0..=self.children.len() {
            let Some(id) = open.pop() else { break };
            open.extend(self.children.get(&id).into_iter().flatten());
            if self.osds.get(&id).is_some_and(|of| class.is_none_or(|class| of == class)) {
                osds.push(id);
            }
        }
        osds
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::detected;

    #[test]
    fn osds_classes_space_and_the_pools_of_rules_are_found_on_16_and_19() {
        let site = detected("cephfs", include_str!("fixtures/16.2.txt"));
        assert_eq!(site.targets.len(), 4);
        let pools: Vec<(&str, Vec<usize>)> =
            site.pools.iter().map(|pool| (pool.name.as_str(), pool.targets.clone())).collect();
        assert_eq!(pools[..3], [("files_data", vec![0, 1, 2, 3]), ("pool0", vec![0]), ("pool1", vec![1])]);
        assert_eq!(site.file.default.pool.as_deref(), Some("files_data"));

        let site = detected("cephfs", include_str!("fixtures/19.2.txt"));
        let classes: Vec<String> = (0..3).map(|target| site.class(target).to_string()).collect();
        assert_eq!(classes, ["hdd", "hdd", "ssd"]);
        let pools: Vec<(&str, Vec<usize>)> =
            site.pools.iter().map(|pool| (pool.name.as_str(), pool.targets.clone())).collect();
        assert_eq!(pools, [("cephfs.data", vec![0, 1]), ("cephfs.flash", vec![2])]);
        // A third of what is free, for three copies.
        assert_eq!(site.group(0).capacity, Some(stripewise_layout::ByteCount(4 << 40)));
    }
}
