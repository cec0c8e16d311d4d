use super::*;
use stripewise_device::{DEVICES, DeviceSpec, Service, lookup_link};
use stripewise_layout::{RequestKind, WriteClass};
use stripewise_store::server::directory::prepare;

fn cluster(directory: &Path, urls: &[(String, &str)]) -> Cluster {
    let mut text = "version = 1\nid = \"c0ffee\"\nstate = \"state\"\n".to_owned();
    for (number, (query, class)) in urls.iter().enumerate() {
        let path = directory.join(format!("s{number}"));
        std::fs::create_dir(&path).unwrap();
        prepare("c0ffee", &format!("s{number}"), &path).unwrap();
        let scheme = if query.is_empty() { "file" } else { "emulated" };
        let url = format!("{scheme}://{}{query}", path.display());
        text += &format!("[[server]]\nname = \"s{number}\"\nclass = \"{class}\"\nurl = \"{url}\"\n");
    }
    StateDirectory::make(&directory.join("state")).unwrap();
    Cluster::parse(&text, &directory.join("cluster.toml")).unwrap()
}

fn near(found: f64, expected: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < 0.05, "{what}: {found} instead of {expected}");
}

/// All named devices side by side, fifty times faster than they are: what calibration finds is what the table says.
#[test]
fn the_parameters_of_emulated_servers_are_recovered() {
    const SCALE: f64 = 0.02;
    let directory = tempfile::tempdir().unwrap();
    let class = |spec: &DeviceSpec| if matches!(spec, DeviceSpec::Hdd(_)) { "hdd" } else { "ssd" };
    let urls: Vec<(String, &str)> = DEVICES
        .iter()
        .map(|device| (format!("?device={}&link=gigabit&time_scale={SCALE}", device.name), class(&device.spec)))
        .collect();
    let cluster = cluster(directory.path(), &urls);
    // Time enough for all rounds, however busy the machine is.
    let options = Options { emulated_budget: Duration::from_secs(600), ..Options::thorough() };
    let Calibration { profile, notes } = measure_servers(&cluster, &options, &|_| {}).unwrap();
    profile.check(&cluster, Path::new("profile.json")).unwrap();
    assert!(profile.emulated);
    assert!(profile.is_awaited(RequestKind::Write(WriteClass::Buffered)), "emulated servers write nothing back");
    for (device, measured) in DEVICES.iter().zip(&profile.servers) {
        for direction in [Direction::Read, Direction::Write] {
            let Service { startup_s, random_startup_s, transfer_s_per_byte } = *device.spec.service(direction);
            for (order, alpha_s) in [(Order::Sequential, startup_s), (Order::Random, random_startup_s)] {
                let line = measured.line(direction, order);
                let what = format!("{} {direction:?} {order:?}", device.name);
                near(line.alpha_s / SCALE, alpha_s, &what);
                near(line.beta_s_per_byte / SCALE, transfer_s_per_byte, &what);
                assert!(line.r2 > 0.999 && line.spread < 0.01, "{what}: {line:?}");
                assert_eq!(line.samples, 33, "{what}");
            }
        }
    }
    let link = lookup_link("gigabit").unwrap();
    near(profile.network.e_s / SCALE, link.message_s, "e");
    near(profile.network.t_s_per_byte / SCALE, link.transfer_s_per_byte, "t");
    assert_eq!(profile.network.source, NetworkSource::Measured);
    assert!(notes[0].contains("s0: emulated hdd-7200, all times multiplied by 0.02"), "{notes:?}");
    for number in 0..DEVICES.len() {
        let left = std::fs::read_dir(directory.path().join(format!("s{number}"))).unwrap().count();
        assert_eq!(left, 2, "the marker and the objects' directory, and nothing of calibration");
    }
}

/// A server with a page cache before it: single buffered writes cost a seek for each run, adjacent ones their bytes.
#[test]
fn buffered_writes_of_emulated_servers_are_measured_where_they_are_taken_in() {
    const SCALE: f64 = 0.02;
    let directory = tempfile::tempdir().unwrap();
    let query = format!("?device=hdd-7200&link=gigabit&time_scale={SCALE}&dirty_limit=64MiB");
    let cluster = cluster(directory.path(), &[(query.clone(), "hdd"), (query, "hdd")]);
    let options = Options { emulated_budget: Duration::from_secs(1), ..Options::thorough() };
    let Calibration { profile, .. } = measure_servers(&cluster, &options, &|_| {}).unwrap();
    assert!(!profile.is_awaited(RequestKind::Write(WriteClass::Buffered)));
    for server in &profile.servers {
        assert!(!server.has_own_line(RequestKind::Write(WriteClass::Synchronous)), "there is no cache to flush");
        let buffered = |order| server.line(RequestKind::Write(WriteClass::Buffered), order);
        let (random, direct) = (buffered(Order::Random), &server.write_random);
        assert!((random.alpha_s / direct.alpha_s - 1.0).abs() < 0.1, "{random:?} {direct:?}");
        let sequential = buffered(Order::Sequential);
        // Batches of large writes are short: their seek counts among their bytes.
        let per_byte = sequential.beta_s_per_byte / SCALE / 8e-9;
        assert!((0.95..1.15).contains(&per_byte), "{sequential:?}");
        assert!(sequential.alpha_s < 0.2 * random.alpha_s, "{sequential:?}: a seek for a batch");
    }
}

#[test]
fn real_directories_have_no_network_unless_it_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = cluster(directory.path(), &[(String::new(), "hdd"), (String::new(), "ssd")]);
    let options = Options { directory_budget: Duration::from_millis(1), file_bytes: 16 << 20, ..Options::quick() };
    let reported = Mutex::new(Vec::new());
    let calibration = measure_servers(&cluster, &options, &|share| reported.lock().unwrap().push(share)).unwrap();
    let profile = calibration.profile;
    assert!(!profile.emulated);
    assert_eq!(profile.network, NetworkProfile { e_s: 0.0, t_s_per_byte: 0.0, source: NetworkSource::Local });
    // Once, or all of both times.
    assert!(matches!(profile.servers[1].read_random.samples, 11 | 22));
    assert!(profile.servers.iter().all(|server| server.write_sequential.seconds(4096.0) > 0.0));
    for server in &profile.servers {
        for class in [WriteClass::Buffered, WriteClass::Synchronous] {
            let line = server.line(RequestKind::Write(class), Order::Random);
            assert!(server.has_own_line(RequestKind::Write(class)) && line.seconds(4096.0) > 0.0, "{line:?}");
        }
    }
    assert!(!profile.is_awaited(RequestKind::Write(WriteClass::Buffered)));
    assert!(calibration.notes[0].starts_with("s0, s1: "), "{:?}", calibration.notes);
    assert!(calibration.notes[0].contains("direct I/O"), "{:?}", calibration.notes);
    let reported = reported.into_inner().unwrap();
    assert!(reported.is_sorted() && reported.last() == Some(&1.0), "{reported:?}");

    let given = Options { network_e_s: Some(3e-4), ..options };
    let network = measure_servers(&cluster, &given, &|_| {}).unwrap().profile.network;
    assert_eq!(network, NetworkProfile { e_s: 3e-4, t_s_per_byte: 0.0, source: NetworkSource::Given });
}

#[test]
fn a_server_that_is_not_there_stops_calibration_before_it_begins() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = cluster(directory.path(), &[(String::new(), "hdd"), ("?device=nvme".to_owned(), "ssd")]);
    std::fs::remove_dir_all(directory.path().join("s1")).unwrap();
    let error = measure_servers(&cluster, &Options::quick(), &|_| {}).err().unwrap();
    assert!(format!("{error:#}").contains("s1"), "{error:#}");
    assert!(!directory.path().join("state/run/stations").exists(), "nothing was made");
}

#[test]
fn links_that_differ_are_pointed_out() {
    let line = |alpha_s| Line { alpha_s, beta_s_per_byte: 1e-8, r2: 1.0, spread: 0.0, samples: 22 };
    let options = Options::thorough();
    let (network, note) = network(&options, &[line(3e-4), line(3.01e-4), line(2.99e-4)]);
    assert_eq!((network.e_s, note), (3e-4, None));
    let (network, note) = super::network(&options, &[line(3e-4), line(3e-4), line(2e-4)]);
    assert_eq!(network.e_s, 3e-4);
    assert!(note.unwrap().contains("links differ"));
}
