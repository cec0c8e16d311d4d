//! What the tests share: the library under test, C programs compiled for the occasion, and programs run with the
//! library in front.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The preload library that cargo built beside this test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().join("libstripewise_preload.so");
    assert!(built.exists(), "{} is missing; build it with `cargo build -p stripewise-preload`", built.display());
    built
}

/// Compiles `tests/programs/NAME.c`, optimised as programs are, with a compiler (`cc`, `mpicc.mpich`, ...).
pub fn compile(compiler: &str, name: &str, into: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c");
    let program = into.join(format!("{name}-{compiler}"));
    let output = Command::new(compiler)
        .args(["-O2", "-Wall", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-o"])
        .arg(&program)
        .arg(&source)
        .arg("-lpthread")
        .output()
        .unwrap_or_else(|error| panic!("{compiler} cannot be started ({error}); `make test` installs it"));
    assert!(output.status.success(), "{compiler} {}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
    program
}

/// A command with the library in front of it.
pub fn preloaded(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    command.env("LD_PRELOAD", library());
    for variable in ["STRIPEWISE_TRACE", "STRIPEWISE_STATE", "STRIPEWISE_DISABLE", "STRIPEWISE_LOG"] {
        command.env_remove(variable);
    }
    command
}

/// Runs a command and wants success; answers what it said.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
