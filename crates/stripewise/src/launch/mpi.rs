//! MPI launchers: which family one belongs to, and how it hands variables on to other nodes.
//!
//! Ranks on the launcher's own node inherit its environment either way. Hydra (MPICH) sends it to other nodes too; Open MPI sends
//! only variables that are named with `-x`.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    OpenMpi,
    /// MPICH and others whose launcher is Hydra.
    Hydra,
}

const NAMES: [&str; 8] =
    ["mpiexec", "mpirun", "orterun", "prterun", "mpiexec.openmpi", "mpirun.openmpi", "mpiexec.mpich", "mpirun.mpich"];

/// What a command line says of the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// Name of the program that does the work, without its directory.
    pub(crate) program: String,
    /// Processes that a launcher is told to start; none when it decides itself, and without one: any program may start others.
    pub(crate) processes: Option<u32>,
}

/// The program behind launchers, and the number of its processes; none without a command.
pub(crate) fn program_and_processes(command: &[OsString]) -> Option<Run> {
    let name = |word: &OsString| {
        let base = Path::new(word).file_name().unwrap_or(word);
        base.to_string_lossy().into_owned()
    };
    let first = command.first()?;
    let base = name(first);
    let is_launcher = NAMES.iter().any(|known| base == *known) || base == "srun" || base == "mpiexec.hydra";
    if !is_launcher {
        return Some(Run { program: base, processes: None });
    }
    let counts = ["-n", "-np", "--np", "-c", "--ntasks", "--n"];
    let given = command.windows(2).find(|pair| counts.iter().any(|flag| pair[0] == OsStr::new(flag)));
    let processes = given.and_then(|pair| pair[1].to_str()?.parse().ok());
    let program = crate::doctor::program_behind(command).map_or(base, |word| name(&word));
    Some(Run { program, processes })
}

/// The rank that a launcher gave this process: Hydra's, Open MPI's, PMIx's or Slurm's.
pub(crate) fn own_rank() -> Option<u32> {
    let names = ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"];
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// The arguments that a launcher needs right after its name so that its ranks get `variables`; none for other programs.
pub(super) fn forwarding<'a>(program: &OsStr, variables: impl Iterator<Item = &'a OsStr>) -> Vec<OsString> {
    let base = Path::new(program).file_name().unwrap_or(program);
    if !NAMES.iter().any(|name| base == OsStr::new(name)) || family(program) != Some(Family::OpenMpi) {
        return Vec::new();
    }
    // Open MPI refuses -x beside this variable, and a user who sets it has taken the forwarding over.
    if std::env::var_os("OMPI_MCA_mca_base_env_list").is_some() {
        return Vec::new();
    }
    variables.flat_map(|name| [OsString::from("-x"), name.to_owned()]).collect()
}

/// The family of a launcher, by what it says of its version.
pub(crate) fn family(program: &OsStr) -> Option<Family> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    family_of_text(&String::from_utf8_lossy(&output.stdout))
}

fn family_of_text(text: &str) -> Option<Family> {
    if ["Open MPI", "OpenRTE", "PRRTE"].iter().any(|name| text.contains(name)) {
        Some(Family::OpenMpi)
    } else if text.contains("HYDRA") || text.contains("Hydra") {
        Some(Family::Hydra)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_told_by_their_version_texts() {
        assert_eq!(family_of_text("mpiexec (OpenRTE) 4.1.4\n\nReport bugs to"), Some(Family::OpenMpi));
        assert_eq!(family_of_text("mpirun (Open MPI) 5.0.3"), Some(Family::OpenMpi));
        assert_eq!(family_of_text("HYDRA build details:\n    Version: 4.0.2"), Some(Family::Hydra));
        assert_eq!(family_of_text("GNU coreutils"), None);
    }

    #[test]
    fn command_lines_name_program_and_processes() {
        let of = |text: &str| {
            let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
            let run = program_and_processes(&words).unwrap();
            (run.program, run.processes)
        };
        assert_eq!(of("./app -n 7"), ("app".to_owned(), None));
        assert_eq!(of("mpiexec -n 32 cat file"), ("cat".to_owned(), Some(32)));
        assert_eq!(of("/usr/bin/mpirun -np 4 --oversubscribe /bin/cat x"), ("cat".to_owned(), Some(4)));
        assert_eq!(of("mpirun --hostfile none cat x"), ("cat".to_owned(), None));
        assert_eq!(program_and_processes(&[]), None);
    }

    #[test]
    fn programs_that_are_no_launchers_get_nothing() {
        assert!(forwarding(OsStr::new("/bin/cat"), [OsStr::new("A")].into_iter()).is_empty());
    }
}
