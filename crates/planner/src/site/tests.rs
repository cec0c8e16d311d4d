use super::*;
use crate::file_system::Naming;
use stripewise_layout::ByteRate;

const LUSTRE: FileSystem = FileSystem {
    name: "lustre",
    title: "Lustre",
    target: "OST",
    radix: 16,
    naming: Naming::Numbers,
    stripe_size: ByteCount(1 << 20),
    stripe_count: 1,
    pool_name_bytes: Some(15),
    has_labels: false,
    has_logged_layouts: true,
    layout_bytes: Some((152, 65536)),
};

const SITE: &str = r#"version = 1
fs = "lustre"
[default]
stripe_count = 2
pool = "disk"
[network]
link = "gigabit"
[[targets]]
class = "hdd"
names = ["OST0008..OST000b"]
pool = "disk"
capacity = "1TiB"
device = "hdd-7200"
[[targets]]
class = "ssd"
names = ["scratch-OST0010"]
bandwidth = "1GB/s"
write_bandwidth = "500MB/s"
latency_ms = 0.5
[[pool]]
name = "mixed"
targets = ["scratch-OST0010", "OST0009"]
"#;

fn parse(text: &str) -> Result<Site, String> {
    Site::parse(text, Path::new("/etc/site.toml"), &[LUSTRE]).map_err(|error| error.to_string())
}

fn device(name: &str) -> Result<TargetTimes, String> {
    let times = Times { sequential_s: 1e-4, random_s: 1e-2, s_per_byte: 8e-9 };
    if name == "hdd-7200" { Ok(TargetTimes { read: times, write: times }) } else { Err(format!("unknown `{name}`")) }
}

fn link(name: &str) -> Result<LinkTimes, String> {
    if name == "gigabit" {
        Ok(LinkTimes { message_s: 3e-4, s_per_byte: 8e-9 })
    } else {
        Err(format!("unknown `{name}`"))
    }
}

#[test]
fn targets_are_numbered_as_the_file_system_does_and_become_servers() {
    let site = parse(SITE).unwrap();
    let targets: Vec<(&str, Option<u32>)> =
        site.targets.iter().map(|target| (target.name.as_str(), target.number)).collect();
    assert_eq!(
        targets,
        [
            ("OST0008", Some(8)),
            ("OST0009", Some(9)),
            ("OST000a", Some(10)),
            ("OST000b", Some(11)),
            ("scratch-OST0010", Some(16))
        ]
    );
    assert_eq!(site.pools[1], Pool { name: "mixed".to_owned(), targets: vec![1, 4], copies: None });
    assert_eq!(site.pool_of(&[0, 1, 2, 3]).unwrap().name, "disk");
    assert_eq!(site.default_layout(), (vec![0, 1, 2, 3], 2, ByteCount(1 << 20)));

    let SiteServers { cluster, profile } = site.servers(&device, &link, None).unwrap();
    cluster.check().unwrap();
    profile.check(&cluster, Path::new("p")).unwrap();
    assert_eq!((cluster.servers[0].capacity, cluster.servers[4].capacity), (Some(ByteCount(1 << 40)), None));
    let flash = &profile.servers[4];
    assert_eq!((flash.read_random.alpha_s, flash.read_sequential.alpha_s), (5e-4, 5e-4));
    assert_eq!((flash.read_random.beta_s_per_byte, flash.write_random.beta_s_per_byte), (1e-9, 2e-9));
    assert_eq!((profile.servers[0].read_random.alpha_s, profile.network.e_s), (1e-2, 3e-4));
    assert_eq!(profile.caveats, [stripewise_model::Caveat::Unmeasured { servers: 5 }]);

    // Parameters may change under a plan, targets may not.
    let faster = parse(&SITE.replace("500MB/s", "600MB/s")).unwrap().servers(&device, &link, None).unwrap();
    let other = parse(&SITE.replace("OST000b", "OST000a")).unwrap().servers(&device, &link, None).unwrap();
    assert!(faster.cluster.id == cluster.id && other.cluster.id != cluster.id);
    assert_eq!(site.file.targets[1].write_bandwidth, Some(ByteRate(500_000_000)));
}

#[test]
fn a_measured_profile_gives_the_lines_of_targets_that_say_nothing_else() {
    let site = parse(SITE).unwrap();
    let mut measured = site.servers(&device, &link, None).unwrap().profile;
    measured.servers.iter_mut().for_each(|server| server.read_random.samples = 9);
    measured.servers[1].read_random.alpha_s = 0.25;
    let bare = parse(&SITE.replace("device = \"hdd-7200\"\n", "")).unwrap();
    let servers = bare.servers(&device, &link, Some(&measured)).unwrap();
    assert_eq!(servers.profile.servers[1].read_random.alpha_s, 0.25);
    measured.servers.remove(1);
    let error = bare.servers(&device, &link, Some(&measured)).unwrap_err().to_string();
    assert!(error.contains("line 10: the profile has no server `OST0009`"), "{error}");
}

#[test]
fn writes_take_as_long_as_the_copies_that_pools_keep() {
    let lines = |text: &str| parse(text).unwrap().servers(&device, &link, None).unwrap().profile.servers;
    let once = lines(SITE);
    let text = SITE
        .replace("pool = \"disk\"\ncapacity", "pool = \"disk\"\ncopies = 2\ncapacity")
        .replace("\"OST0009\"]", "\"OST0009\"]\ncopies = 3");
    assert_eq!(parse(&text).unwrap().pools[1].copies, Some(3));
    let copied = lines(&text);
    // Of two pools the one that keeps most counts.
    for (server, times) in [(0, 2.0), (1, 3.0), (4, 3.0)] {
        let (once, copied) = (&once[server], &copied[server]);
        assert_eq!((&copied.read_random, &copied.read_sequential), (&once.read_random, &once.read_sequential));
        for (copied, once) in [
            (copied.write_random, once.write_random),
            (copied.write_sequential, once.write_sequential),
            (copied.buffered_write.unwrap().random, once.buffered_write.unwrap().random),
        ] {
            assert_eq!(copied.beta_s_per_byte, once.beta_s_per_byte * times);
            assert_eq!(copied.alpha_s, once.alpha_s * times);
        }
    }
}

#[test]
fn expressions_of_labels_say_how_many_copies_there_are() {
    let labels =
        FileSystem { name: "moosefs", naming: Naming::Pools, has_labels: true, pool_name_bytes: None, ..LUSTRE };
    let of = |pool: &str, copies: &str| {
        let text = format!(
            "version = 1\nfs = \"moosefs\"\n[[targets]]\nclass = \"hdd\"\nnames = [\"a\", \"b\"]\npool = \"{pool}\"\n{copies}device = \"hdd-7200\"\n"
        );
        let site = Site::parse(&text, Path::new("s.toml"), &[labels]).map_err(|error| error.to_string());
        site.map(|site| site.pools[0].copies)
    };
    for (pool, copies) in [("S", Some(1)), ("2S", Some(2)), ("2S,A*B", Some(3)), ("12*", Some(12)), ("@8+2", None)] {
        assert_eq!(of(pool, ""), Ok(copies), "{pool}");
    }
    assert_eq!(of("2S", "copies = 2\n"), Ok(Some(2)));
    let error = of("2S", "copies = 3\n").unwrap_err();
    assert!(error.contains("line 7: copies = 3, but `2S` makes 2 in Lustre"), "{error}");
}

#[test]
fn addresses_are_asked_for_where_commands_need_them() {
    let by_address = FileSystem { name: "orangefs", naming: Naming::Addresses, radix: 10, ..LUSTRE };
    let parse = |addresses: &str| {
        let text = format!(
            "version = 1\nfs = \"orangefs\"\n[[targets]]\nclass = \"hdd\"\nnames = [\"a\", \"b\"]\n{addresses}device = \"hdd-7200\"\n"
        );
        Site::parse(&text, Path::new("s.toml"), &[by_address]).map_err(|error| error.to_string())
    };
    let site = parse("addresses = [\"tcp://a:3334\", \"tcp://b:3334\"]\n").unwrap();
    assert_eq!(site.targets[1].address.as_deref(), Some("tcp://b:3334"));
    for (addresses, expected) in [
        ("", "line 5: 0 addresses for 2 names"),
        ("addresses = [\"tcp://a:3334\"]\n", "line 6: 1 addresses for 2 names"),
        ("addresses = [\"tcp://a:3334\", \"b c\"]\n", "line 6: address \"b c\" is not one word"),
    ] {
        let error = parse(addresses).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn faults_name_file_line_value_and_remedy() {
    for (from, to, expected) in [
        ("version = 1", "version = 2\ncolour = 3", "version 2 of a site is not supported"),
        ("\"lustre\"", "\"gpfs\"", "line 2: fs = `gpfs` is not a known file system; known: lustre"),
        ("stripe_count = 2", "stripe_cuont = 2", "unknown field `stripe_cuont`"),
        ("stripe_count = 2", "stripe_count = 5", "line 4: stripe_count = 5, but there are 4 targets"),
        ("stripe_count = 2", "stripe_size = \"100KiB\"", "line 4: stripe_size = \"100KiB\" is not a multiple of 64KiB"),
        (
            "pool = \"disk\"\n[network]",
            "pool = \"dsik\"\n[network]",
            "line 5: pool = `dsik` is none of the site's pools",
        ),
        ("OST0008..OST000b", "OST0008..OST0004", "line 10: `OST0008..OST0004` is no range"),
        ("OST0008..OST000b", "OST0008..OSS000b", "line 10: `OST0008..OSS000b` is no range"),
        ("OST0008..OST000b", "OST 8", "line 10: target name `OST 8`: use letters"),
        ("OST0008..OST000b", "disk", "line 10: Lustre commands name a OST by its number, and `disk`"),
        ("\"scratch-OST0010\"]\nb", "\"OST0009\"]\nb", "line 16: `OST0009` is in an earlier group too"),
        ("scratch-OST0010\"]\nb", "x-OST0009\"]\nb", "line 16: `OST0009` and `x-OST0009` both have number 9"),
        ("capacity = \"1TiB\"", "capacity = 0", "line 12: capacity = 0 leaves no space"),
        ("fs = \"lustre\"", "fs = \"lustre\"\nmount = \".\"", "line 3: mount = \".\" is no absolute path"),
        ("capacity = \"1TiB\"", "copies = 0", "line 12: copies = 0 keeps no byte"),
        ("latency_ms = 0.5", "latency_ms = 0.5\ncopies = 2", "line 20: copies are those of a pool"),
        ("latency_ms = 0.5", "latency_ms = -1.0", "line 19: latency_ms = -1 is not a time"),
        ("\"1GB/s\"", "\"1\"", "`1` has no unit"),
        ("\"mixed\"", "\"disk\"", "line 21: pool `disk` is described twice"),
        ("\"mixed\"", "\"a b\"", "line 21: pool name \"a b\" is not one word"),
        (
            "\"mixed\"",
            "\"of-disks-and-ssds\"",
            "line 21: pool name `of-disks-and-ssds` has 17 bytes, but Lustre takes 15 at most",
        ),
        ("\"OST0009\"]", "\"OST0001\"]", "line 22: pool `mixed` names `OST0001`"),
    ] {
        assert!(SITE.contains(from), "{from}");
        let error = parse(&SITE.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains("/etc/site.toml") && error.contains(expected), "{expected}\nbut: {error}");
    }
    let copies = SITE
        .replace("capacity = \"1TiB\"", "copies = 3")
        .replace("latency_ms = 0.5", "latency_ms = 0.5\npool = \"disk\"\ncopies = 2");
    let error = parse(&copies).unwrap_err();
    assert!(error.contains("line 21: copies = 2, but an earlier group of pool `disk` has 3"), "{error}");
    for (from, to, expected) in [
        ("hdd-7200", "floppy", "line 13: unknown `floppy`"),
        ("gigabit", "string", "line 7: unknown `string`"),
        ("latency_ms = 0.5", "", "line 17: a bandwidth goes with latency_ms"),
        ("device = \"hdd-7200\"", "", "line 10: `OST0008` has no parameters"),
        (
            "device = \"hdd-7200\"",
            "device = \"hdd-7200\"\nbandwidth = \"1GB/s\"",
            "line 13: `OST0008` has a device and a bandwidth",
        ),
        (
            "link = \"gigabit\"",
            "latency_ms = 1.0",
            "line 6: give the network either a link, or latency_ms and bandwidth",
        ),
    ] {
        let site = parse(&SITE.replacen(from, to, 1)).unwrap();
        let error = site.servers(&device, &link, None).unwrap_err().to_string();
        assert!(error.contains("/etc/site.toml") && error.contains(expected), "{expected}\nbut: {error}");
    }
}
