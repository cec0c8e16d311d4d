//! An experiment for the tests alone. It has what every experiment has, an entry of the catalogue, and is found wherever experiments are.

use super::experiment::{Experiment, Findings, Panel, Published, Row, SIMULATED, Unit};
use super::{ReproduceOptions, Results, TestbedKind, experiments, reproduce, text};
use stripewise::Voice;

pub(super) const PAPER: &str = "Dummy";

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    id: "dummy",
    paper: PAPER,
    place: "nowhere",
    title: "What the dummy finds",
    testbeds: SIMULATED,
    setup: "One case.",
    discussion: "It finds what it says.",
    run: |setting| {
        let found = setting.map(&[42.0], |found| Ok(*found))?;
        let rows = vec![Row::new("case", "dummies", Unit::Count, Published::Value(42.0), found[0])];
        let panels =
            vec![Panel::new("Dummies", Unit::Count, "case", ["found"], [("case".to_owned(), vec![Some(found[0])])])];
        Ok(Findings { rows, panels, ..Findings::default() })
    },
}];

#[test]
fn a_row_makes_an_experiment_known_everywhere() {
    assert!(experiments().any(|experiment| experiment.id == "dummy"));
    let scratch = tempfile::tempdir().unwrap();
    let (output, document) = (scratch.path().join("results"), scratch.path().join("docs"));
    let options = ReproduceOptions {
        ids: vec!["dummy".to_owned()],
        all: false,
        testbed: TestbedKind::Simulated,
        seed: 1,
        output: Some(output.clone()),
        document: Some(document.clone()),
        from: None,
        emulated_from: None,
    };
    let done = reproduce(&Voice::silent(), &options).unwrap();
    assert!(done.len() == 1 && text(&done[0]).contains("What the dummy finds"), "{}", text(&done[0]));
    let json = serde_json::to_string(&Results::of(&done)).unwrap();
    assert!(json.contains("\"id\":\"dummy\""), "{json}");
    let with_details = |cases: u64| {
        let mut one =
            reproduce(&Voice::silent(), &ReproduceOptions { output: None, document: None, ..options.clone() }).unwrap();
        one[0].findings.details.insert("cases".to_owned(), cases.into());
        one.remove(0)
    };
    let several = [with_details(1), with_details(2)];
    let one = serde_json::to_value(Results::of(&several[..1])).unwrap();
    assert_eq!(one["cases"], 1);
    let both = serde_json::to_value(Results::of(&several)).unwrap();
    let cases = |number: usize| both["experiments"][number]["details"]["cases"].clone();
    assert_eq!((cases(0), cases(1)), (1.into(), 2.into()), "no experiment replaces another's: {both}");
    let read =
        |path: std::path::PathBuf| std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    for name in ["dummy.csv", "dummy.json", "dummy.svg"] {
        let text = read(output.join(name));
        assert!(text.contains("42"), "{name}: {text}");
    }
    assert!(read(document.join("reproduction/dummy.md")).contains("## dummy: Dummy, nowhere"));
    assert!(read(document.join("reproduction.md")).contains("](reproduction/dummy.md)"));
    assert!(document.join("reproduction/dummy.svg").exists());

    let emulated = ReproduceOptions { testbed: TestbedKind::Emulated, ..options.clone() };
    let refused = reproduce(&Voice::silent(), &emulated).err().map(|error| error.to_string());
    assert_eq!(refused.as_deref(), Some("dummy cannot run on the emulated testbed; leave --testbed out"));
}
