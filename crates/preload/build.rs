//! Links the library with the static unwinder of GCC where the compiler has it, so that no program loads `libgcc_s.so.1` on its account: that library asks
//! the processor for its features when it is loaded, and every such question traps where a hypervisor answers.
//!
//! The standard library asks the linker for `gcc_s` by name. A linker script of that name, found before the shared library, leads to the static one. That is
//! the compiler's own and fits its C library; for another target or linker, as packages for older systems are made with, the shared one stays.
//!
//! The library's constructor runs before all others (`process`). Not every linker knows how to ask for that; `packaging/init-first` does it afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let variable = |name| std::env::var(name).ok();
    let is_own = variable("HOST") == variable("TARGET") && variable("RUSTC_LINKER").is_none();
    let is_gnu = variable("CARGO_CFG_TARGET_ENV").as_deref() == Some("gnu");
    if is_own && is_gnu {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    }
    if is_own
        && is_gnu
        && let Some(unwinder) = static_unwinder()
    {
        let directory = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        std::fs::write(directory.join("libgcc_s.so"), format!("INPUT(\"{}\")\n", unwinder.display()))?;
        println!("cargo::rustc-link-search=native={}", directory.display());
    }
    Ok(())
}

fn static_unwinder() -> Option<PathBuf> {
    let answer = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output().ok()?;
    let path = PathBuf::from(String::from_utf8(answer.stdout).ok()?.trim());
    // What the compiler has not got it names without a directory.
    (path != Path::new("libgcc_eh.a") && path.is_file()).then_some(path)
}
