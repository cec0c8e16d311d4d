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
    use crate::policy::fixtures::{cluster, file, profile};
    use crate::{Plan, PlanKey, PlanOptions, PlanRequest, Sources, compare, comparison_text, plan_text};
    use std::path::Path;
    use stripewise_layout::ServerId;

    #[test]
    fn a_row_makes_a_policy_known_everywhere() {
        assert!(PolicyName::ALL.contains(&PolicyName::Dummy));
        assert_eq!("dummy".parse(), Ok(PolicyName::Dummy));
        let unknown = "dumm".parse::<PolicyName>().unwrap_err().to_string();
        assert!(unknown.contains("opt, dummy"), "{unknown}");

        let (cluster, files) = (cluster(1, 1, 2), [file(&[10, 10], 4)]);
        let profile = profile(&cluster);
        let request = PlanRequest {
            cluster: &cluster,
            profile: &profile,
            files: &files,
            key: PlanKey::new("program", 4),
            sources: Sources::default(),
            options: PlanOptions::default(),
            free_bytes: &[],
            promises_whole_regions: false,
            concurrency: None,
        };
        let plan = crate::plan(PolicyName::Dummy, &request).unwrap();
        let servers: Vec<ServerId> = plan.files[0].initial().layouts.iter().map(|l| l.stripes()[0].server).collect();
        assert_eq!(servers, [ServerId(0)]);
        let text = plan.to_json();
        assert!(text.contains("\"policy\": \"dummy\""), "{text}");
        assert_eq!(Plan::parse(&text, Path::new("plan.json")).unwrap(), plan);
        assert!(plan_text(&plan, &cluster, "next").contains("dummy"));
        let all = compare(&request, &PolicyName::ALL).unwrap();
        assert!(comparison_text(&all).contains("dummy"));
        assert!(crate::reference().ends_with("| [`dummy`](#dummy) | none: our own | nothing | none | no |\n"));
    }
}
