//! Writes the stored inputs that are made by our own code: `cargo run --package stripewise-fuzz --example corpus`, after a format has changed.
//! Those that are text are written by hand, and so are inputs that once failed; both stay as they are.

use std::path::Path;
use stripewise_broker::description::{self, Head, Line, Place, Sequence};
use stripewise_broker::hosts::{Frame, Introduction, Kind, encode_hello};
use stripewise_broker::rmt::lmdb::LmdbStore;
use stripewise_broker::rmt::{
    Changes, ClusterRecord, FileRecord, FileState, Inode, LogRecord, MappingStore, NameKind, RegionRecord,
    ReplicaRecord, Table,
};
use stripewise_fuzz::TARGETS;
use stripewise_fuzz::targets::trace::RECORDER_FILE;
use stripewise_layout::{
    ByteCount, Direction, FileId, Generation, Layout, Placement, RegionIndex, ServerClass, ServerId,
};
use stripewise_store::packet;
use stripewise_store::protocol::{
    Admin, ExpectedFile, FileInfo, Finding, FragmentStatus, MigrateBandwidth, MoveControl, MoveOrder, MoveTotals,
    NameCall, PROTOCOL_VERSION, Refusal, RegionInfo, ReplicaInfo, Reply, Request, RequestCost, ServerInfo, ServerUsage,
    WantedReplicas,
};
use stripewise_store::server::Standing;
use stripewise_store::stub::Stub;
use stripewise_trace::{Pattern, TraceShape, Workload, write_csv, write_trace};

const FILE: FileId = FileId(0x1234_5678_9abc_def0);

fn main() {
    packets();
    table();
    traces();
    recorded();
    texts();
    links();
}

fn write(target: &str, name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|row| row.name == target).expect("a target of this name");
    std::fs::create_dir_all(target.corpus()).unwrap();
    std::fs::write(target.corpus().join(name), bytes).unwrap();
}

fn layout(pairs: &[(u16, u32)]) -> Layout {
    Layout::new(pairs.iter().map(|(server, bytes)| (ServerId(*server), *bytes))).unwrap()
}

fn placement() -> Placement {
    let (wide, fast) = (layout(&[(0, 65_536), (1, 65_536), (2, 131_072)]), layout(&[(2, 4096), (3, 4096)]));
    let regions = [wide.clone(), wide.clone(), fast];
    Placement::from_regions(ByteCount(1 << 20), regions, wide, layout(&[(0, 4096)]))
}

fn wanted() -> Vec<WantedReplicas> {
    vec![WantedReplicas { first: RegionIndex(1), regions: 2, layout: layout(&[(2, 16_384), (3, 16_384)]) }]
}

fn packets() {
    let (path, file) = ("/data/out.h5".to_owned(), FILE);
    let (first, last) = (RegionIndex(0), RegionIndex(7));
    let expected = ExpectedFile { path: path.clone(), placement: placement(), replicas: Some(wanted()) };
    let requests = [
        ("hello", Request::Hello { version: PROTOCOL_VERSION }),
        ("processes", Request::Processes),
        ("claimed", Request::Claimed { slot: 3, incarnation: 9 }),
        ("create", Request::Create { path: path.clone() }),
        ("place", Request::Place { file, first, last }),
        ("rescue", Request::Rescue { file, region: last, generation: Generation(3), server: 2 }),
        ("truncate", Request::Truncate { file, size_bytes: 1 << 40, number: 0 }),
        (
            "rename",
            Request::BeginNameChange {
                number: 77,
                call: NameCall::Rename,
                source: Some(b"a".to_vec()),
                target: b"b\xff".to_vec(),
                victim: Some(file),
                mover: Some(FileId(5)),
            },
        ),
        ("refresh", Request::Refresh { file, first, last }),
        ("object", Request::OpenObject { file, region: first, generation: Generation(1), server: 0 }),
        (
            "import",
            Request::Admin(Admin::Import {
                path: path.clone(),
                placement: placement(),
                temporary: "/data/.t".to_owned(),
            }),
        ),
        ("list", Request::Admin(Admin::List { after: Some(file) })),
        (
            "move",
            Request::Admin(Admin::Move { orders: vec![MoveOrder { file, first, last, layout: layout(&[(1, 4096)]) }] }),
        ),
        (
            "bandwidth",
            Request::Admin(Admin::ControlMoves(MoveControl::Bandwidth(MigrateBandwidth::BytesPerS(1 << 20)))),
        ),
        ("placement", Request::Admin(Admin::SetPlacement { file, placement: placement() })),
        ("replicas", Request::Admin(Admin::SetReplicas { file, wanted: wanted() })),
        ("expect", Request::Admin(Admin::ExpectFiles { files: vec![expected.clone(), expected] })),
    ];
    for (name, request) in requests {
        write("request", name, &packet::encode(&request).unwrap());
    }
    let server = |name: &str, class| ServerInfo {
        name: name.to_owned(),
        class,
        url: format!("file:///servers/{name}"),
        read_cost: RequestCost::usual(class),
    };
    let replica = ReplicaInfo { stripes: vec![(2, 4096)], fresh: true };
    let fragments = FragmentStatus {
        hserver: 0,
        on: 2,
        slot_bytes: 32_768,
        slots: 8192,
        used: 7,
        dirty: 3,
        read_hits: 1,
        read_hit_bytes: 2,
        write_hits: 3,
        write_hit_bytes: 4,
        copied_in: 5,
        written_back_bytes: 6,
        mean_return_ns_per_byte: [0.5, -3.25],
        admitted: [1, 2],
        refused: [3, 4],
    };
    let replies = [
        ("done", Reply::Done),
        (
            "welcome",
            Reply::Welcome {
                cluster: "c0ffee".to_owned(),
                servers: vec![server("hdd0", ServerClass::Hdd), server("ssd0", ServerClass::Ssd)],
                managed: vec!["/data".to_owned()],
                expected: vec!["/data/later".to_owned()],
                min_sizes: vec![("/data".to_owned(), 1 << 20)],
                shared: true,
            },
        ),
        ("opened", Reply::Opened { file, writable: true }),
        (
            "files",
            Reply::Files {
                files: vec![FileInfo {
                    file,
                    path,
                    size_bytes: 1 << 33,
                    region_bytes: 1 << 20,
                    regions_placed: 9,
                    users: 1,
                    state: "live".to_owned(),
                }],
                more: true,
            },
        ),
        (
            "usage",
            Reply::Usage {
                servers: vec![ServerUsage {
                    name: "hdd0".to_owned(),
                    promised_bytes: 5,
                    room_bytes: Some(6),
                    objects: 7,
                    drained: false,
                    fault: Some("it is away".to_owned()),
                    silent_s: Some(9),
                    standing: Ok(Standing { free_bytes: 10, total_bytes: 11, file_system: Some(12) }),
                }],
            },
        ),
        (
            "regions",
            Reply::Regions {
                regions: vec![RegionInfo {
                    region: first,
                    generation: Generation(1),
                    stripes: vec![(0, 65_536), (2, 4096)],
                    fell_back: true,
                    replicas: vec![replica],
                }],
                more: false,
            },
        ),
        (
            "findings",
            Reply::Findings {
                findings: vec![Finding { what: "a".to_owned(), remedy: "b".to_owned(), repaired: true }],
            },
        ),
        ("moves", Reply::Moves { totals: MoveTotals::default(), moves: Vec::new(), more: false }),
        ("placement", Reply::Placement { placement: placement() }),
        ("fragments", Reply::FileFragments { on: true, set_by_file: Some(true), servers: vec![fragments] }),
        ("refused", Reply::Refused(Refusal::Version { broker: 5, client: 4 })),
        ("no-space", Reply::Refused(Refusal::NoSpace { what: "server hdd0 is full".to_owned() })),
    ];
    for (name, reply) in replies {
        write("reply", name, &packet::encode(&reply).unwrap());
    }
}

fn inode(number: u64) -> Inode {
    Inode { device: 66, inode: number, born_ns: 1_700_000_000_000_000_000 }
}

fn file_record(path: &str, state: FileState) -> FileRecord {
    FileRecord {
        path: path.to_owned(),
        stub: inode(41),
        boot: [9; 16],
        region_bytes: 1 << 20,
        size_bytes: 5 << 20,
        generations_reserved: 64,
        generations_synced: 3,
        state,
        truncating_to_bytes: Some(1 << 20),
        has_leftovers: true,
        mode: 0o640,
        uid: 1000,
        gid: 1000,
        created_ns: 1,
        epoch: 0,
        parent: Some(inode(2)),
        above: vec![inode(3), inode(4)],
        root: Some("/data".to_owned()),
        is_described: true,
        is_size_untold: false,
        put_away_in: None,
        put_away_unsynced: false,
        truncating_number: None,
        truncation_numbers: Vec::new(),
        truncations: 0,
    }
}

/// A small table, and its records one by one.
fn table() {
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(Box::new(LmdbStore::open(directory.path()).unwrap())).unwrap();
    let servers = ["hdd0", "hdd1", "ssd0", "ssd1"].map(str::to_owned).to_vec();
    table.belong_to(&ClusterRecord { id: "c0ffee".to_owned(), servers }).unwrap();
    let mut changes = Changes::default();
    let importing = FileState::Importing { original: inode(7), temporary: "/data/.t".to_owned(), complete: true };
    for (number, state) in (0..).zip([FileState::Live, importing]) {
        let file = FileId(FILE.0 + number);
        changes.put_file(file, &file_record(&format!("/data/out.{number}"), state));
        changes.put_placement(file, &placement());
        changes.put_inode(inode(41 + number), file);
        for region in 0..3 {
            let layout = layout(&[(0, 65_536), (2, 131_072)]);
            let record =
                RegionRecord { fell_back: region == 1, ..RegionRecord::placed(Generation(region + 1), layout) };
            changes.put_region(file, RegionIndex(region), &record);
        }
        let replica = ReplicaRecord { generation: Generation(9), layout: layout(&[(3, 4096)]) };
        changes.put_replica(file, RegionIndex(1), 0, &replica);
        changes.put_discard(file, RegionIndex(2), Generation(8), &layout(&[(1, 4096)]));
        changes.put_log(file, ServerId(0), LogRecord { on: ServerId(2), generation: Generation(1) });
        changes.put_wanted(file, &wanted());
        changes.put_fragments_switch(file, Some(true));
    }
    changes.put_name(NameKind::Managed, "/data", &placement()).unwrap();
    // Longer than a page of LMDB.
    let many = (0..300).map(|number| layout(&[(number % 4, 4096 * (1 + u32::from(number)))]));
    let long = Placement::from_regions(ByteCount(1 << 20), many, layout(&[(0, 4096)]), layout(&[(1, 4096)]));
    changes.put_name(NameKind::Expected, "/data/later", &long).unwrap();
    changes.expect_replicas("/data/later", &wanted()).unwrap();
    table.commit(&changes).unwrap();
    drop(table);
    write("table", "small", &std::fs::read(directory.path().join("data.mdb")).unwrap());
    let store = LmdbStore::open(directory.path()).unwrap();
    let mut kinds = std::collections::BTreeSet::new();
    for (key, value) in store.scan(b"", None, 1000).unwrap() {
        if kinds.insert(key[0]) && key != b"v" && key != b"e/data/later" {
            write_record(&char::from(key[0]).to_string(), &key, &value[..value.len() - 8]);
        }
    }
    // As versions 1 to 3 wrote them.
    let fixture = include_str!("../../broker/src/rmt/version_3.txt");
    for line in fixture.lines().filter(|line| !line.starts_with('#')) {
        let (key, value) = line.split_once(' ').unwrap();
        let key = bytes(key);
        let name = format!("version-3-{}", char::from(key[0]));
        write_record(&name, &key, &bytes(value));
    }
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn write_record(name: &str, key: &[u8], record: &[u8]) {
    write("record", name, &[&[key.len() as u8], key, record].concat());
}

fn traces() {
    let directory = tempfile::tempdir().unwrap();
    for (number, pattern) in
        [Pattern::Strided, Pattern::Zipf { exponent: 0.8, region_size: ByteCount(1 << 20) }].into_iter().enumerate()
    {
        let path = directory.path().join(number.to_string());
        std::fs::create_dir(&path).unwrap();
        let workload = Workload {
            pattern,
            file_size: ByteCount(4 << 20),
            request_size: ByteCount(48 << 10),
            direction: if number == 0 { Direction::Read } else { Direction::Write },
            ranks: 2,
            requests_per_rank: 8,
            seed: 3,
        };
        let shape = TraceShape { nodes: 2, file: format!("/data/{number}"), ..TraceShape::default() };
        write_trace(&workload.generator().unwrap(), &shape, &path).unwrap();
        let mut files: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let of_processes = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "swt"));
        let parts: Vec<Vec<u8>> = of_processes.map(|path| std::fs::read(path).unwrap()).collect();
        write("trace", &format!("whole-{number}"), &parts.concat());
        // As a process that was killed leaves it: not finished, and no length.
        let mut killed = parts[0].clone();
        killed[80] = 0;
        killed[88..96].fill(0);
        write("trace", &format!("killed-{number}"), &killed);
        let mut csv = Vec::new();
        write_csv(&stripewise_trace::Trace::open(&path).unwrap(), &mut csv).unwrap();
        write("csv", &format!("exported-{number}"), &csv);
        if let Ok(manifest) = std::fs::read(path.join("trace.json")) {
            write("manifest", &format!("generated-{number}"), &manifest);
        }
    }
}

/// What Recorder wrote, without the names of HDF5's functions.
fn recorded() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/fixtures/recorder");
    for version in ["2.3.3", "2.5.0-shared", "3.0.0"] {
        let mut paths: Vec<_> =
            std::fs::read_dir(fixtures.join(version)).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let mut bytes = Vec::new();
        for path in paths.iter().filter(|path| path.is_file()) {
            let name = path.file_name().unwrap().as_encoded_bytes();
            let contents = std::fs::read(path).unwrap();
            let end = contents.windows(3).position(|bytes| bytes == b"\nH5").unwrap_or(contents.len());
            bytes.extend([RECORDER_FILE, name, b"\n", &contents[..end]].concat());
        }
        write("recorder", version, &bytes);
    }
}

fn links() {
    let hello = encode_hello(&Introduction {
        cluster: "c0ffee".to_owned(),
        host: "node7".to_owned(),
        machine: "0123456789abcdef".to_owned(),
        process: 4711,
        version: 1,
        boot: Some("0123".to_owned()),
        directory: Some("4567-1b".to_owned()),
    });
    write("link", "refused", &[&hello[..], &Frame::encode_text(Kind::Refusal, 0, "host node7 was forgotten")].concat());
    let frames = [
        Frame::encode(Kind::Welcome, 0, &[]),
        Frame::encode(Kind::Question, 1, b"which region?"),
        Frame::encode(Kind::Notice, 0, &[7; 300]),
        Frame::encode(Kind::Answer, 1, b"that one"),
        Frame::encode_text(Kind::Failure, 2, "no such file"),
        Frame::encode(Kind::Ping, 0, &[]),
    ];
    write("link", "talk", &[hello, frames.concat()].concat());
}

fn texts() {
    let stub = Stub { file: FILE, cluster: "c0ffee".to_owned(), state: Path::new("/a dir/state").to_owned() };
    write("stub", "whole", &stub.to_bytes().unwrap());
    let head = Line::File(Head {
        file: FILE,
        cluster: "c0ffee".to_owned(),
        region_bytes: 1 << 20,
        mode: 0o640,
        uid: 1000,
        gid: 1000,
        path: "/data/a b.\u{e4}".to_owned(),
    });
    let place = |region: u32, generation| Line::Place {
        region: RegionIndex(region),
        place: Place {
            generation: Generation(generation),
            stripes: vec![("hdd0".to_owned(), 65_536), ("ssd-1.a".to_owned(), 131_072)],
        },
        size_bytes: u64::from(region + 1) << 20,
    };
    let lines = [
        head,
        place(0, 1),
        place(1, 2),
        place(5, 3),
        Line::Truncated { size_bytes: 3 << 20 },
        Line::Size { size_bytes: 3 << 20, is_exact: false },
        place(1, 4),
        Line::Size { size_bytes: 7, is_exact: true },
    ];
    let text = (1..)
        .zip(&lines)
        .fold(format!("{}\n", stripewise_store::server::FIRST_LINE_OF_DESCRIPTIONS), |text, (step, line)| {
            text + &description::line(Sequence { broker: 1_700_000_000, step }, line)
        });
    write("description", "whole", text.as_bytes());
    write("description", "torn", &text.as_bytes()[..text.len() - 30]);
}
