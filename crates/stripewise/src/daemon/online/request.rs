//! What the planner is asked: the files as they are expected to be used, by programs that nobody names.

use stripewise_layout::Cluster;
use stripewise_model::Profile;
use stripewise_planner::{PlanKey, PlanOptions, PlanRequest, Sources};
use stripewise_trace::FileAccess;

/// A request for all files together. Its key has as many processes as costs are multiplied by: those of all files.
pub(super) fn request<'a>(
    cluster: &'a Cluster,
    profile: &'a Profile,
    files: &'a [FileAccess],
    options: PlanOptions,
) -> PlanRequest<'a> {
    let request = PlanRequest {
        cluster,
        profile,
        files,
        key: PlanKey::new("", 1),
        sources: Sources::default(),
        options,
        free_bytes: &[],
        promises_whole_regions: true,
        concurrency: None,
    };
    let processes = request.concurrency().processes;
    PlanRequest { key: PlanKey::new("", processes), ..request }
}

#[cfg(test)]
mod tests {
    use super::super::super::watch;
    use super::*;
    use std::path::Path;
    use stripewise_layout::{
        ByteCount, FileOffset, Layout, Placement, RequestKind, Server, ServerClass, ServerId, ServerUrl, WriteClass,
    };
    use stripewise_planner::{PolicyName, plan, predict};
    use stripewise_store::observer::Noted;
    use stripewise_trace::{LiveFile, LiveOptions, LiveProcess, ProcessCount};

    const REGION_BYTES: u64 = 1 << 20;
    const FILE_BYTES: u64 = 64 * REGION_BYTES;
    const REQUEST_BYTES: u32 = 4096;

    fn cluster() -> Cluster {
        let server = |number: usize| {
            let class = if number < 2 { ServerClass::Hdd } else { ServerClass::Ssd };
            Server::new(format!("s{number}"), class, ServerUrl::new("file", format!("/servers/s{number}")))
        };
        Cluster::new("c0ffee", "/state", ByteCount(REGION_BYTES), (0..3).map(server).collect())
    }

    /// Disks that seek, whose write-back is sorted.
    fn profile() -> Profile {
        let line = |alpha_s: f64| serde_json::json!({"alpha_s": alpha_s, "beta_s_per_byte": 1e-8, "r2": 1.0, "spread": 0.0, "samples": 9});
        let server = |number: usize| {
            let (class, random_s) = if number < 2 { ("hdd", 0.012) } else { ("ssd", 0.0001) };
            let of = |random_s: f64| serde_json::json!({"sequential": line(1e-5), "random": line(random_s)});
            serde_json::json!({"name": format!("s{number}"), "class": class,
                "read_sequential": line(1e-5), "read_random": line(random_s),
                "write_sequential": line(1e-5), "write_random": line(random_s),
                "buffered_write": of(random_s / 10.0), "synchronous_write": of(random_s * 2.0)})
        };
        let text = serde_json::json!({"version": 3, "cluster": "c0ffee", "emulated": false,
            "measured_at": "2024-02-29T12:00:00Z", "servers": (0..3).map(server).collect::<Vec<_>>(),
            "network": {"e_s": 0.0, "t_s_per_byte": 0.0, "source": "local"}});
        Profile::parse(&text.to_string(), Path::new("profile.json")).unwrap()
    }

    /// What is seen of processes that each access 32 places of a file, from their own quarter on.
    fn seen(path: &str, kind: RequestKind, processes: impl Iterator<Item = u32>, of_run: u32) -> FileAccess {
        let options = LiveOptions { region_size: ByteCount(REGION_BYTES), ..LiveOptions::default() };
        let mut file = LiveFile::new(options);
        for process in processes {
            let places = (0..32).map(|turn| (u64::from(process % 4) * 16 * REGION_BYTES) + turn * 300_000);
            let noted = places.map(|at| Noted { kind, offset: FileOffset(at), bytes: REQUEST_BYTES, time_ms: 7 });
            let requests: Vec<_> = noted.map(|noted| watch::request(&noted)).collect();
            file.add(LiveProcess { node: process % 2, process: process / 2 }, 0, &requests, 0);
        }
        file.finish(path.to_owned(), FILE_BYTES, (0.0, 1.0), ProcessCount { processes: of_run, per_node: of_run / 2 })
    }

    /// Seen alike but for their kind: the daemon took all writes as direct.
    #[test]
    fn what_is_seen_of_writes_is_predicted_by_what_they_wait_for() {
        let (cluster, profile) = (cluster(), profile());
        let layout = Layout::new([(ServerId(0), 64 << 10), (ServerId(1), 64 << 10)]).unwrap();
        let placement = Placement::uniform(ByteCount(REGION_BYTES), layout.clone(), layout);
        let time_s = |class| {
            let files = [seen("/data/f", RequestKind::Write(class), 0..4, 4)];
            let request = request(&cluster, &profile, &files, PlanOptions::default());
            predict(&placement, &files[0], &profile, None, request.concurrency()).total.time_s
        };
        let [buffered_s, direct_s, synchronous_s] =
            [WriteClass::Buffered, WriteClass::Direct, WriteClass::Synchronous].map(time_s);
        assert!(
            3.0 * buffered_s < direct_s && 1.5 * direct_s < synchronous_s,
            "{buffered_s} {direct_s} {synchronous_s}"
        );
    }

    /// Every region was accessed by one process. The key said one, where the costs are those of eight.
    #[test]
    fn the_key_has_the_processes_of_all_files() {
        let (cluster, profile) = (cluster(), profile());
        let files =
            [("/data/f", 0..4), ("/data/g", 4..8)].map(|(path, processes)| seen(path, RequestKind::Read, processes, 8));
        assert!(files.iter().all(|file| file.windows[0].regions.iter().all(|region| region.processes == 1)));
        let request = request(&cluster, &profile, &files, PlanOptions::default());
        let concurrency = request.concurrency();
        assert_eq!((request.key.all_processes(), concurrency.processes, concurrency.processes_per_node), (8, 8, 4));
        let plan = plan(PolicyName::Def, &request).unwrap();
        assert_eq!((plan.key.processes, plan.concurrency.processes), (8, 8));
    }
}
