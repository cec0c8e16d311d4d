//! Any sequence of requests, restarts and reboots against a plain model of one file.
//!
//! Every object is filled to its full share as soon as it exists, beyond the file's size too, as writers that die before they publish the
//! size would leave it. The model knows for each region how far it may still hold bytes; the objects must hold exactly that.

use crate::cluster::{Client, Opened, REGION, STRIPE, Testbed};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use stripewise_broker::{BrokerHandle, BrokerOptions};
use stripewise_layout::{FileId, Layout, RegionGeometry, RegionIndex, ServerId};
use stripewise_store::protocol::{Admin, Reply, Request};
use stripewise_store::state::HostIdentity;

#[derive(Clone, Debug)]
enum Step {
    Place {
        first: u32,
        count: u32,
    },
    Truncate {
        size_bytes: u64,
    },
    /// As a write does.
    Raise {
        size_bytes: u64,
    },
    Sync,
    /// Another broker, in the same boot or the next.
    Restart {
        reboot: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = || prop_oneof![0..8 * REGION, (0..8u64).prop_map(|region| region * REGION)];
    let step = prop_oneof![
        3 => (0..6u32, 1..4u32).prop_map(|(first, count)| Step::Place { first, count }),
        3 => size().prop_map(|size_bytes| Step::Truncate { size_bytes }),
        2 => size().prop_map(|size_bytes| Step::Raise { size_bytes }),
        1 => Just(Step::Sync),
        2 => any::<bool>().prop_map(|reboot| Step::Restart { reboot }),
    ];
    proptest::collection::vec(step, 1..16)
}

#[derive(Default)]
struct Model {
    size_bytes: u64,
    /// Placed regions: generation, and how many of their bytes may be held.
    regions: BTreeMap<u32, (u32, u64)>,
    generations: HashSet<u32>,
}

impl Model {
    /// Nothing is held beyond `size_bytes`.
    fn truncated(&mut self, size_bytes: u64) {
        let geometry = RegionGeometry::new(REGION);
        for (region, (_, held)) in &mut self.regions {
            *held = (*held).min(geometry.used_bytes(RegionIndex(*region), size_bytes));
        }
    }
}

struct World {
    testbed: Testbed,
    broker: Option<BrokerHandle>,
    client: Option<Client>,
    file: FileId,
    opened: Opened,
    boot: u8,
}

impl World {
    fn options(boot: u8) -> BrokerOptions {
        let host = HostIdentity { machine: "m".into(), name: "h".into(), boot: [boot; 16] };
        BrokerOptions { host: Some(host), ..BrokerOptions::default() }
    }

    fn new() -> Self {
        let testbed = Testbed::new();
        let broker = Some(testbed.start_with(Self::options(1)));
        testbed.manage_data();
        let client = testbed.client();
        let (opened, _stub) = client.create(&testbed.data("f")).unwrap();
        Self { broker, client: Some(client), file: opened.file, opened, boot: 1, testbed }
    }

    fn ask(&self, request: Request) -> Reply {
        self.client.as_ref().unwrap().ask(request).unwrap()
    }

    fn restart(&mut self, reboot: bool) {
        self.client = None;
        self.broker = None;
        self.boot += u8::from(reboot);
        self.broker = Some(self.testbed.start_with(Self::options(self.boot)));
        let client = self.testbed.client();
        let stub = File::options().write(true).open(self.testbed.data("f")).unwrap();
        self.opened = client.open(self.file, stub).unwrap();
        self.client = Some(client);
    }

    fn apply(&mut self, model: &mut Model, step: &Step) {
        let file = self.file;
        match *step {
            Step::Place { first, count } => {
                let last = first + count - 1;
                self.ask(Request::Place { file, first: RegionIndex(first), last: RegionIndex(last) });
                for region in first..=last {
                    let generation = self.opened.generation(region).unwrap();
                    if let Some((known, _)) = model.regions.get(&region) {
                        assert_eq!(generation, *known, "placed once");
                        continue;
                    }
                    assert!(model.generations.insert(generation), "generation {generation} given out twice");
                    for server in 0..4 {
                        let object = format!("stripewise-objects/{file}/{region}.{generation}");
                        let path = self.testbed.server_directory(server).join(object);
                        std::fs::write(path, vec![1; REGION as usize / 4]).unwrap();
                    }
                    model.regions.insert(region, (generation, REGION));
                }
            }
            Step::Truncate { size_bytes } => {
                self.ask(Request::Truncate { file, size_bytes, number: 0 });
                if size_bytes < model.size_bytes {
                    let count = RegionGeometry::new(REGION).count_for(size_bytes);
                    model.regions.retain(|region, _| *region < count);
                }
                model.truncated(model.size_bytes.min(size_bytes));
                model.size_bytes = size_bytes;
            }
            Step::Raise { size_bytes } => {
                self.opened.extent.extend_to(size_bytes);
                model.size_bytes = model.size_bytes.max(size_bytes);
            }
            Step::Sync => {
                self.ask(Request::Sync { file });
                assert_eq!(self.opened.control.durable_size_bytes(), Some(model.size_bytes));
            }
            Step::Restart { reboot } => {
                self.restart(reboot);
                if reboot {
                    model.truncated(model.size_bytes);
                }
            }
        }
    }

    fn compare(&self, model: &Model) {
        assert_eq!(self.opened.extent.size_bytes(), model.size_bytes);
        assert!(!self.opened.control.gate().is_shut());
        for region in 0..12 {
            assert_eq!(self.opened.generation(region), model.regions.get(&region).map(|(generation, _)| *generation));
        }
        let layout = Layout::new((0..4).map(|server| (ServerId(server), STRIPE))).unwrap();
        for (turn, objects) in self.testbed.objects(self.file).iter().enumerate() {
            let expected: Vec<_> = model
                .regions
                .iter()
                .map(|(region, (generation, held))| (*region, *generation, layout.view().object_bytes(turn, *held)))
                .collect();
            assert_eq!(objects, &expected, "server {turn}");
        }
        let Reply::Usage { servers } = self.ask(Request::Admin(Admin::Usage)) else { panic!("no usage") };
        let count = model.regions.len() as u64;
        assert!(servers.iter().all(|server| (server.promised_bytes, server.objects) == (count * REGION / 4, count)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_broker_agrees_with_the_model(steps in steps()) {
        let (mut world, mut model) = (World::new(), Model::default());
        for step in &steps {
            world.apply(&mut model, step);
            world.compare(&model);
        }
        let findings = world.ask(Request::Admin(Admin::Check { repair: false }));
        prop_assert_eq!(findings, Reply::Findings { findings: vec![] });
    }
}
