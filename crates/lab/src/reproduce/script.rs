//! Programs for experiments, whose steps are made while they are asked for.

use stripewise_layout::{Direction, FileOffset};
use stripewise_trace::{FileShape, IoRequest, Program, ProgramFile, Step};

type MakeSteps<'a> = dyn Fn(u32) -> Box<dyn Iterator<Item = Step> + Send + 'a> + Sync + 'a;

/// A program whose steps are made when asked for: millions of requests take no memory.
pub(super) struct Generated<'a> {
    files: Vec<FileShape>,
    processes: u32,
    nodes: u32,
    phases: u32,
    make: Box<MakeSteps<'a>>,
}

impl<'a> Generated<'a> {
    /// On one shared file. `make` gives the steps of a process, the same at every call, with `phases` - 1 phase marks.
    pub(super) fn shared<I: Iterator<Item = Step> + Send + 'a>(
        file_bytes: u64,
        (processes, nodes): (u32, u32),
        phases: u32,
        make: impl Fn(u32) -> I + Sync + 'a,
    ) -> Self {
        let files = vec![FileShape { path: SHARED.to_owned(), size_bytes: file_bytes }];
        Self { files, processes, nodes, phases, make: Box::new(move |process| Box::new(make(process))) }
    }

    /// With a file of `file_bytes` for each process, in one phase.
    pub(super) fn file_per_process<I: Iterator<Item = Step> + Send + 'a>(
        file_bytes: u64,
        (processes, nodes): (u32, u32),
        make: impl Fn(u32) -> I + Sync + 'a,
    ) -> Self {
        let file = |process| FileShape { path: format!("/data/own.{process}"), size_bytes: file_bytes };
        let make = Box::new(move |process| -> Box<dyn Iterator<Item = Step> + Send + 'a> { Box::new(make(process)) });
        Self { files: (0..processes).map(file).collect(), processes, nodes, phases: 1, make }
    }
}

impl Program for Generated<'_> {
    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn processes(&self) -> u32 {
        self.processes
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn phases(&self) -> u32 {
        self.phases
    }

    fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        (self.make)(process)
    }
}

/// The path of a program's shared file, which never exists outside the simulation.
pub(super) const SHARED: &str = "/data/shared";

/// An access to a program's first file.
pub(super) fn access(direction: Direction, offset: u64, bytes: u64) -> Step {
    Step::Access(IoRequest { file: ProgramFile(0), kind: direction.into(), offset: FileOffset(offset), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise::laboratory::Lab;
    use stripewise_device::{lookup_device, lookup_link};
    use stripewise_layout::{ByteCount, Order};
    use stripewise_planner::PolicyName;
    use stripewise_sim::Migration;

    fn lab() -> Lab {
        let (hdd, ssd) = (lookup_device("paper-hdd").unwrap(), lookup_device("paper-ssd").unwrap());
        let link = lookup_link("gigabit").unwrap();
        Lab::hybrid((2, hdd), (1, ssd), link, Some(ByteCount(1 << 20)), ByteCount(1 << 20))
    }

    #[test]
    fn a_request_alone_takes_what_the_profile_says() {
        let lab = lab();
        assert_eq!(lab.cluster.check(), Ok(()));
        assert!(lab.profile.check(&lab.cluster, std::path::Path::new("p")).is_ok());
        let program = Generated::shared(1 << 20, (1, 1), 1, |_| std::iter::once(access(Direction::Read, 0, 65_536)));
        let plan = lab.plan_counted(PolicyName::Def, &program, &lab.count(&program), 1).unwrap();
        let outcome = lab.simulate(&plan, &program, Migration::Free).unwrap();
        let region = stripewise_layout::RegionIndex(0);
        let server = usize::from(plan.files[0].initial().layout_of(region).stripes()[0].server.0);
        let device_s = lab.profile.servers[server].line(Direction::Read, Order::Random).seconds(65_536.0);
        let link_s = lab.profile.network.e_s + 65_536.0 * lab.profile.network.t_s_per_byte;
        assert!((outcome.time_s - device_s - link_s).abs() < 1e-8, "{} {device_s} {link_s}", outcome.time_s);
    }
}
