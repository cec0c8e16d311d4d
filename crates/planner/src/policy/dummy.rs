//! A policy for the tests alone. It has what every policy has, a module and a row of the table, and is found wherever policies are.

use super::{About, FileChoice, Policy, Source, Task, region_count};
use stripewise_layout::{Layout, ServerId};

pub(crate) struct Dummy;

impl Policy for Dummy {
    fn about(&self) -> About {
        About {
            section: "dummy",
            source: Source::Own,
            stripes_differ_by: "nothing",
            ssd_regions: "none",
            moves_data: "no",
        }
    }

    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        let layout = Layout::new([(ServerId(0), 64 << 10)]).expect("one server and a stripe size");
        let files = task.request.files.iter();
        files
            .map(|file| FileChoice {
                layouts: vec![layout.clone()],
                windows: vec![vec![0; region_count(file) as usize]],
                fallback: 0,
            })
            .collect()
    }
}

mod tests {
    use crate::policy::PolicyName;
    use crate::{Plan, PlanKey, PlanOptions, PlanRequest, Sources, compare, comparison_text, plan_text};
    use std::path::Path;
    use stripewise_layout::{
        ByteCount, Cluster, Direction, Order, RegionIndex, Server, ServerClass, ServerId, ServerUrl,
    };
    use stripewise_model::{Line, NetworkProfile, NetworkSource, PROFILE_VERSION, Profile, ServerProfile};
    use stripewise_trace::{
        AccessClass, ClassIndex, Company, FileAccess, RegionAccess, Slices, WindowAccess, WindowProcesses,
    };

    const MIB: u64 = 1 << 20;

    fn cluster() -> Cluster {
        let server = |(class, name): (ServerClass, &str)| {
            Server::new(name.to_owned(), class, ServerUrl::new("file", format!("/{name}")))
        };
        let servers = [(ServerClass::Hdd, "disk"), (ServerClass::Ssd, "flash")].map(server);
        Cluster::new("two", "/state", ByteCount(MIB), servers.into())
    }

    fn profile(cluster: &Cluster) -> Profile {
        let line = Line { alpha_s: 1e-3, beta_s_per_byte: 8e-9, r2: 1.0, spread: 0.0, samples: 9 };
        let server = |server: &Server| ServerProfile {
            name: server.name.clone(),
            class: server.class,
            read_sequential: line,
            read_random: line,
            write_sequential: line,
            write_random: line,
            buffered_write: None,
            synchronous_write: None,
            flush_wait: None,
        };
        Profile {
            version: PROFILE_VERSION,
            cluster: cluster.id.clone(),
            emulated: false,
            measured_at: String::new(),
            servers: cluster.servers.iter().map(server).collect(),
            network: NetworkProfile { e_s: 1e-4, t_s_per_byte: 8e-9, source: NetworkSource::Given },
            caveats: Vec::new(),
        }
    }

    /// Two regions that are read as often.
    fn file() -> FileAccess {
        let region = |region| RegionAccess {
            region: RegionIndex(region),
            counts: vec![(ClassIndex(0), 10)],
            processes: 4,
            processes_per_node: 1,
            slices: Slices::ALL,
        };
        FileAccess {
            path: "/data/file".to_owned(),
            size_bytes: 2 * MIB,
            region_size: ByteCount(MIB),
            classes: vec![AccessClass { kind: Direction::Read.into(), request_bytes: 64 << 10, order: Order::Random }],
            windows: vec![WindowAccess {
                start_s: 0.0,
                end_s: 60.0,
                company: Company::default(),
                processes: WindowProcesses::default(),
                regions: [0, 1].map(region).into(),
            }],
        }
    }

    #[test]
    fn a_row_makes_a_policy_known_everywhere() {
        assert!(PolicyName::ALL.contains(&PolicyName::Dummy));
        assert_eq!("dummy".parse(), Ok(PolicyName::Dummy));
        let unknown = "dumm".parse::<PolicyName>().unwrap_err().to_string();
        assert!(unknown.contains("opt, dummy"), "{unknown}");

        let (cluster, files) = (cluster(), [file()]);
        let profile = profile(&cluster);
        let request = PlanRequest {
            cluster: &cluster,
            profile: &profile,
            files: &files,
            key: PlanKey::new("program", 4),
            sources: Sources::default(),
            options: PlanOptions::default(),
            free_bytes: &[],
            concurrency: None,
        };
        let plan = crate::plan(PolicyName::Dummy, &request).unwrap();
        let servers: Vec<ServerId> = plan.files[0].initial().layouts.iter().map(|l| l.stripes()[0].server).collect();
        assert_eq!(servers, [ServerId(0)]);
        let text = plan.to_json();
        assert!(text.contains("\"policy\": \"dummy\""), "{text}");
        assert_eq!(Plan::parse(&text, Path::new("plan.json")).unwrap(), plan);
        assert!(plan_text(&plan, &cluster).contains("dummy"));
        let all = compare(&request, &PolicyName::ALL).unwrap();
        assert!(comparison_text(&all).contains("dummy"));
        assert!(crate::reference().ends_with("| [`dummy`](#dummy) | none: our own | nothing | none | no |\n"));
    }
}
