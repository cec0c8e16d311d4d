//! Fragments as a person meets them: room is set aside, a file is switched, a program writes, `stat` tells.

mod support;

use serde_json::{Value, json};
use support::{Place, noise, preload};

/// A cluster of directories with these keys at the top of its file, and `data`, 3 MiB on two disks in stripes of 64 KiB.
fn place(keys: &str) -> (Place, Vec<u8>) {
    let place = Place::with_cluster();
    let toml = String::from_utf8(place.read("cluster.toml")).unwrap();
    place.write("cluster.toml", toml.replacen("[[server]]", &format!("{keys}\n[[server]]"), 1).as_bytes());
    std::fs::create_dir(place.path("managed")).unwrap();
    place.done(&["manage", "managed", "--class", "hdd"]);
    let data = noise(3 << 20);
    place.write("original", &data);
    place.done(&["cp", "--managed", "original", "managed/data"]);
    (place, data)
}

const DATA: &str = "managed/data";

fn fragments(place: &Place) -> Value {
    place.json(&["stat", DATA])["files"][0]["fragments"].clone()
}

/// The disks take a device's time, a thousandth of it.
fn emulate_disks(place: &Place) {
    let mut toml = String::from_utf8(place.read("cluster.toml")).unwrap();
    for disk in ["h0", "h1"] {
        let directory = place.path(disk);
        let url = format!("file://{}", directory.display());
        assert!(toml.contains(&format!("{url}\"")), "{toml}");
        toml = toml.replace(
            &format!("{url}\""),
            &format!("emulated://{}?device=hdd-7200&time_scale=0.001\"", directory.display()),
        );
    }
    place.write("cluster.toml", toml.as_bytes());
}

/// Writes and reads again 200 short ranges through a redirected program.
const WRITE: &str = "
import os
data = os.open('managed/data', os.O_RDWR)
for i in range(200):
    os.pwrite(data, bytes([i]) * 1000, i * 9000)
    assert os.pread(data, 3000, i * 9000)[:1000] == bytes([i]) * 1000
";

fn written(mut data: Vec<u8>) -> Vec<u8> {
    for number in 0..200 {
        data[number * 9000..][..1000].fill(number as u8);
    }
    data
}

#[test]
fn a_file_is_switched_on_and_off_and_keeps_its_bytes() {
    preload();
    let (place, data) = place("fragment_room = \"1MiB\"");
    assert_eq!(fragments(&place), json!({"on": false, "set_by_file": null, "has_room": true, "logs": []}));
    assert!(!place.done(&["stat", DATA]).contains("fragments"), "nothing is to be said");
    let switched = place.json(&["fragments", "on", DATA]);
    assert_eq!((&switched["files"][0]["on"], &switched["files"][0]["set_by_file"]), (&json!(true), &json!(true)));
    place.done(&["run", "--", "python3", "-c", WRITE]);
    let shown = fragments(&place);
    assert_eq!((&shown["on"], &shown["set_by_file"]), (&json!(true), &json!(true)));
    assert!(place.done(&["stat", DATA]).contains("fragments on, said of the file"));
    let data = written(data);
    assert!(place.command(&["cat", DATA]).output().unwrap().stdout == data);
    let said = place.say(&["fragments", "off", DATA]);
    assert_eq!(
        (said.status, said.err.as_str()),
        (0, "stripewise fragments: managed/data: fragments go to the disks\n")
    );
    let shown = fragments(&place);
    assert_eq!((&shown["on"], &shown["set_by_file"]), (&json!(false), &json!(false)));
    let dirty = |log: &Value| log["dirty_bytes"].as_u64().unwrap();
    assert_eq!(shown["logs"].as_array().unwrap().iter().map(dirty).sum::<u64>(), 0);
    let said = place.say(&["fragments", "default", DATA]);
    assert!(said.err.contains("fragments go to the disks, as the cluster file says"), "{}", said.err);
    assert_eq!(place.say(&["check"]).status, 0);
    place.done(&["release", DATA]);
    assert!(place.read(DATA) == data);
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn the_cluster_file_switches_all_files_but_those_that_are_switched_themselves() {
    preload();
    let (place, data) = place("fragments = true\nfragment_room = \"1MiB\"");
    emulate_disks(&place);
    place.done(&["cp", "--managed", "original", "managed/other"]);
    let said = place.say(&["fragments", "off", "managed/other"]);
    assert_eq!(said.status, 0, "{}", said.err);
    place.done(&["run", "--", "python3", "-c", WRITE]);
    let shown = fragments(&place);
    assert_eq!((&shown["on"], &shown["set_by_file"]), (&json!(true), &json!(null)));
    // Made by the first short request, one for each disk, on the SSDs in turn.
    let names =
        |key: &str| -> Vec<Value> { shown["logs"].as_array().unwrap().iter().map(|log| log[key].clone()).collect() };
    assert_eq!((names("disk"), names("on")), (vec![json!("h0"), json!("h1")], vec![json!("s0"), json!("s1")]));
    assert_eq!(names("slot_bytes"), [32 << 10, 32 << 10]);
    assert_eq!(names("room_bytes"), [1 << 20, 1 << 20]);
    for log in shown["logs"].as_array().unwrap() {
        // How many short requests were weighed depends on how fast this host's disks answered.
        let weighed = |class: &str| log[class]["admitted"].as_u64().unwrap() + log[class]["refused"].as_u64().unwrap();
        assert!(weighed("random") <= 400, "{log}");
        assert_eq!(weighed("fragments"), 0, "no request was longer than a stripe: {log}");
    }
    let text = place.done(&["stat", DATA]);
    assert!(text.contains("fragments on, as the cluster file says") && text.contains("short requests"), "{text}");
    assert_eq!(place.json(&["stat", "managed/other"])["files"][0]["fragments"]["on"], false);
    assert!(place.command(&["cat", DATA]).output().unwrap().stdout == written(data));
    place.done(&["rm", DATA, "managed/other"]);
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn what_cannot_be_switched_is_said_with_the_remedy() {
    let (place, _) = place("");
    let said = place.say(&["fragments", "on", DATA]);
    assert_eq!(
        (said.status, said.err.as_str()),
        (
            2,
            "stripewise fragments: cluster.toml reserves no space for fragments; write `fragment_room = \"256MiB\"`, or another size, above its first [[server]]\n"
        )
    );
    assert_eq!(place.say(&["fragments", "off", DATA]).status, 0, "off needs no room");
    let said = place.say(&["fragments", "off", "original", DATA]);
    assert!(said.status == 2 && said.err.contains("original is not a managed file"), "{}", said.err);
    let said = place.say(&["fragments", "up", DATA]);
    assert!(said.status == 2 && said.err.contains("[possible values: on, off, default]"), "{}", said.err);
}
