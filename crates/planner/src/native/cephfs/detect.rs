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
        parsed(text.trim()).map_err(|error| format!("`{}` prints no JSON: {error}", command.join(" ")))
    };
    let (tree, df) = (json(&["osd", "tree"])?, json(&["osd", "df"])?);
    let (file_systems, pools, rules) =
        (json(&["fs", "ls"])?, json(&["osd", "pool", "ls", "detail"])?, json(&["osd", "crush", "rule", "dump"])?);
    let tree = Tree::new(&tree);
    let mut data: Vec<DataPool> = Vec::new();
    for name in array(&file_systems, "").flat_map(|fs| array(fs, "data_pools")).filter_map(Value::as_str) {
        let Some(pool) = array(&pools, "").find(|pool| text(pool, "pool_name") == name) else { continue };
        let rule = number(pool, "crush_rule");
        let rule = array(&rules, "").find(|of| rule.is_some() && number(of, "rule_id") == rule);
        let parts = number(pool, "size").unwrap_or(1).max(1);
        let profile = Some(text(pool, "erasure_code_profile")).filter(|name| !name.is_empty());
        let data_parts = match profile.filter(|_| number(pool, "type") != Some(REPLICATED)) {
            Some(profile) => Some(data_parts(&json(&["osd", "erasure-code-profile", "get", profile])?, parts)),
            None => None,
        };
        data.push(DataPool { name: name.to_owned(), osds: tree.osds_of(rule), parts, data_parts });
    }
    let targets = targets(&tree, &df, &data);
    let pool_of = |pool: &DataPool| PoolOf {
        name: pool.name.clone(),
        targets: pool.osds.iter().map(|id| format!("osd.{id}")).collect(),
        copies: pool.data_parts.is_none().then(|| u32::try_from(pool.parts).ok()).flatten(),
    };
    let listed: Vec<PoolOf> = data.iter().map(pool_of).filter(|pool| !pool.targets.is_empty()).collect();
    let default = DefaultLayout { pool: listed.first().map(|pool| pool.name.clone()), ..DefaultLayout::default() };
    let mut found = describe(&NATIVE.fs, mount, targets, listed, default)?;
    found.remarks.extend(other_file_systems(&file_systems));
    found.remarks.extend(data.iter().filter_map(DataPool::remark));
    Ok(found)
}

/// Ceph 18 before 18.2.5 prints what a pool's balance is without PGs as `inf`, which JSON does not have.
fn parsed(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|error| {
        let mut known = text.to_owned();
        for (number, end) in ["inf", "-inf", "nan", "-nan"].iter().flat_map(|number| [(number, ','), (number, '}')]) {
            known = known.replace(&format!(":{number}{end}"), &format!(":null{end}"));
        }
        serde_json::from_str(&known).map_err(|_| error)
    })
}

/// `type` of a pool that keeps copies.
const REPLICATED: u64 = 1;

/// A pool that files may lie in.
struct DataPool {
    name: String,
    osds: Vec<i64>,
    /// Copies, or parts into which erasure coding puts each object.
    parts: u64,
    /// Of an erasure-coded pool: the parts that have data.
    data_parts: Option<u64>,
}

impl DataPool {
    /// Bytes of files of so many bytes of its OSDs.
    fn of_files(&self, bytes: u64) -> u64 {
        let bytes = u128::from(bytes) * u128::from(self.data_parts.unwrap_or(1)) / u128::from(self.parts);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    fn remark(&self) -> Option<String> {
        let data = self.data_parts?;
        Some(format!(
            "pool {} is erasure-coded: a byte of a file takes {:.2} bytes on its OSDs, which capacities contain; predictions count its writes once, unless it has copies = {}",
            self.name,
            self.parts as f64 / data as f64,
            self.parts.div_ceil(data)
        ))
    }
}

/// `k` of an erasure-code profile, whose values are text.
fn data_parts(profile: &Value, parts: u64) -> u64 {
    text(profile, "k").parse().ok().filter(|data| (1..=parts).contains(data)).unwrap_or(1)
}

/// OSDs with what files may fill of them, which the pool that keeps most copies decides.
fn targets(tree: &Tree, df: &Value, data: &[DataPool]) -> Vec<FoundTarget> {
    let available: BTreeMap<i64, u64> = array(df, "nodes")
        .filter_map(|node| Some((node.get("id")?.as_i64()?, number(node, "kb_avail")?.saturating_mul(1 << 10))))
        .collect();
    let target = |(id, osd): (&i64, &Osd)| {
        let mut pools = data.iter().filter(|pool| pool.osds.contains(id)).peekable();
        let is_of_files = pools.peek().is_some();
        let available = available.get(id).copied();
        FoundTarget {
            name: format!("osd.{id}"),
            class: match osd.class.as_str() {
                "hdd" => Some(ServerClass::Hdd),
                "ssd" | "nvme" => Some(ServerClass::Ssd),
                _ => None,
            },
            free_bytes: available.map(|bytes| pools.map(|pool| pool.of_files(bytes)).min().unwrap_or(bytes)),
            unusable: match (osd.is_up, osd.is_in, is_of_files) {
                (false, ..) => Some("is down".to_owned()),
                (true, false, _) => Some("is out".to_owned()),
                (true, true, false) => Some("is in no data pool".to_owned()),
                (true, true, true) => None,
            },
            ..FoundTarget::default()
        }
    };
    tree.osds.iter().map(target).collect()
}

/// One file system is mounted, and commands do not say which.
fn other_file_systems(file_systems: &Value) -> Option<String> {
    let of = |fs: &Value| {
        let pools: Vec<&str> = array(fs, "data_pools").filter_map(Value::as_str).collect();
        format!("{} has {}", text(fs, "name"), pools.join(", "))
    };
    let all: Vec<String> = array(file_systems, "").map(of).collect();
    (all.len() > 1).then(|| {
        format!(
            "there are {} file systems, and the commands do not say which is mounted: keep the pools of that one, and its pool in [default] ({})",
            all.len(),
            all.join("; ")
        )
    })
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

struct Osd {
    class: String,
    is_up: bool,
    /// Data are put on it.
    is_in: bool,
}

/// Buckets and OSDs of CRUSH.
struct Tree {
    /// By id.
    osds: BTreeMap<i64, Osd>,
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
                let osd = Osd {
                    class: text(node, "device_class").to_owned(),
                    is_up: text(node, "status") != "down",
                    is_in: node.get("reweight").and_then(Value::as_f64) != Some(0.0),
                };
                found.osds.insert(id, osd);
            }
        }
        found
    }

    /// OSDs that a rule may choose, in order.
    fn osds_of(&self, rule: Option<&Value>) -> Vec<i64> {
        let steps = rule.into_iter().flat_map(|rule| array(rule, "steps"));
        let taken = steps.filter(|step| text(step, "op") == "take").map(|step| text(step, "item_name"));
        let mut osds: Vec<i64> = taken.flat_map(|item| self.osds(item)).collect();
        osds.sort_unstable();
        osds.dedup();
        osds
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
            if self.osds.get(&id).is_some_and(|of| class.is_none_or(|class| of.class == class)) {
                osds.push(id);
            }
        }
        osds
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{detected, text_of};

    /// Two file systems, an erasure-coded pool, and OSDs that are down, out, full or of no pool.
    const SEVERAL: &str = r#"
$ ceph osd tree -f json
{"nodes":[{"id":-1,"name":"default","type":"root","children":[0,1,2,3,4]},{"id":-2,"name":"other","type":"root","children":[5]},{"id":0,"device_class":"hdd","name":"osd.0","type":"osd","status":"up","reweight":1},{"id":1,"device_class":"hdd","name":"osd.1","type":"osd","status":"down","reweight":1},{"id":2,"device_class":"ssd","name":"osd.2","type":"osd","status":"up","reweight":1},{"id":3,"device_class":"hdd","name":"osd.3","type":"osd","status":"up","reweight":0},{"id":4,"device_class":"hdd","name":"osd.4","type":"osd","status":"up","reweight":0.5},{"id":5,"device_class":"hdd","name":"osd.5","type":"osd","status":"up","reweight":1}],"stray":[]}
$ ceph osd df -f json
{"nodes":[{"id":0,"kb_avail":100663296},{"id":1,"kb_avail":0},{"id":2,"kb_avail":100663296},{"id":3,"kb_avail":0},{"id":4,"kb_avail":0},{"id":5,"kb_avail":100663296}]}
$ ceph fs ls -f json
[{"name":"a","data_pools":["a.data","a.ec"]},{"name":"b","data_pools":["b.data"]}]
$ ceph osd pool ls detail -f json
[{"pool_name":"a.data","type":1,"size":2,"crush_rule":1,"erasure_code_profile":""},{"pool_name":"a.ec","type":3,"size":6,"crush_rule":2,"erasure_code_profile":"p"},{"pool_name":"b.data","type":1,"size":3,"crush_rule":3,"erasure_code_profile":""}]
$ ceph osd crush rule dump -f json
[{"rule_id":1,"steps":[{"op":"take","item_name":"default~ssd"}]},{"rule_id":2,"steps":[{"op":"take","item_name":"default~hdd"}]},{"rule_id":3,"steps":[{"op":"take","item_name":"default~ssd"}]}]
$ ceph osd erasure-code-profile get p -f json
{"crush-device-class":"","k":"4","m":"2","plugin":"jerasure"}
"#;

    #[test]
    fn osds_without_data_are_left_out_and_each_has_the_capacity_of_its_own_pools() {
        let site = detected("cephfs", SEVERAL);
        let targets: Vec<(&str, Option<u64>)> = site
            .targets
            .iter()
            .zip(0..)
            .map(|(target, number)| (target.name.as_str(), site.group(number).capacity.map(|bytes| bytes.0 >> 30)))
            .collect();
        // 96 GiB, of which 4 of 6 parts are data, or which three copies share.
        assert_eq!(targets, [("osd.0", Some(64)), ("osd.2", Some(32))]);
        let pools: Vec<(&str, Option<u32>)> = site.pools.iter().map(|pool| (pool.name.as_str(), pool.copies)).collect();
        assert_eq!(pools, [("a.data", Some(2)), ("a.ec", None), ("b.data", Some(3))]);
        let text = text_of("cephfs", SEVERAL);
        for said in [
            "left out: osd.1 is down;",
            "left out: osd.3 is out;",
            "left out: osd.4 has no free space;",
            "left out: osd.5 is in no data pool;",
            "there are 2 file systems, and the commands do not say which is mounted: keep the pools of that one, and its pool in [default] (a has a.data, a.ec; b has b.data)",
            "pool a.ec is erasure-coded: a byte of a file takes 1.50 bytes on its OSDs",
        ] {
            assert!(text.contains(said), "no `{said}` in {text}");
        }
    }

    #[test]
    fn numbers_that_json_does_not_have_are_none() {
        let pool = super::parsed(r#"[{"id":1,"balance":{"score":inf,"worst":-nan},"name":"a:inf,"}]"#).unwrap();
        assert_eq!(pool[0]["balance"]["score"], serde_json::Value::Null);
        assert_eq!(pool[0]["id"], 1);
        assert!(super::parsed("[inf").is_err() && super::parsed("no JSON:inf,").is_err());
    }

    #[test]
    fn classes_erasure_coding_and_osds_that_are_down_or_out_are_found_on_18() {
        let site = detected("cephfs", include_str!("fixtures/18.2.txt"));
        let targets: Vec<(&str, String, Option<u64>)> = site
            .targets
            .iter()
            .zip(0..)
            .map(|(target, number)| {
                let gib = site.group(number).capacity.map(|bytes| bytes.0 >> 30);
                (target.name.as_str(), site.class(number).to_string(), gib)
            })
            .collect();
        // Nearly 64 and 16 GiB, which three and two copies share.
        let expected = [
            ("osd.0", "hdd", 16_u64),
            ("osd.1", "hdd", 16),
            ("osd.2", "hdd", 16),
            ("osd.3", "hdd", 16),
            ("osd.6", "ssd", 4),
            ("osd.7", "ssd", 4),
        ];
        assert_eq!(targets, expected.map(|(name, class, gib)| (name, class.to_owned(), Some(gib))));
        let pools: Vec<(&str, Vec<usize>, Option<u32>)> =
            site.pools.iter().map(|pool| (pool.name.as_str(), pool.targets.clone(), pool.copies)).collect();
        assert_eq!(
            pools,
            [
                ("cephfs.site.data", vec![0, 1, 2, 3], Some(3)),
                ("cephfs.site.flash", vec![4, 5], Some(2)),
                ("cephfs.site.coded", vec![0, 1, 2, 3], None),
            ]
        );
        assert_eq!(site.file.default.pool.as_deref(), Some("cephfs.site.data"));
        let text = text_of("cephfs", include_str!("fixtures/18.2.txt"));
        for said in [
            "left out: osd.4 is down;",
            "left out: osd.5 is out;",
            "pool cephfs.site.coded is erasure-coded: a byte of a file takes 1.50 bytes on its OSDs",
        ] {
            assert!(text.contains(said), "no `{said}` in {text}");
        }
    }

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
        assert_eq!(site.pools.iter().map(|pool| pool.copies).collect::<Vec<_>>(), [Some(3), Some(2)]);
        assert!(!text_of("cephfs", include_str!("fixtures/19.2.txt")).contains("file systems"));
        // A third of what is free, for three copies.
        assert_eq!(site.group(0).capacity, Some(stripewise_layout::ByteCount(4 << 40)));
    }
}
