//! `stripewise evacuate`: empty a server while programs run.

use crate::completions;
use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use stripewise::Store;
use stripewise::evacuate::{evacuate, use_again};
use stripewise_layout::figures::counted;

/// The command's former name, which its JSON object keeps: programs may ask for it.
pub(crate) const JSON_NAME: &str = "drain";

/// Empty a server: move all that lies on it to the other servers, and place nothing new there
///
/// Programs read and write meanwhile. Every layout is used without the server, its other stripes as they are; where it lay alone, the other servers of
/// its class take its place, or all others. The server stays drained until `--undo`: leave it in cluster.toml, since servers are known by their
/// order, unless it is the last one there. The command was named `drain`, which still works.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise evacuate ssd1
  stripewise evacuate ssd1 --undo")]
pub(crate) struct EvacuateArgs {
    #[arg(value_name = "SERVER", add = completions::servers())]
    server: String,

    /// Let the server be used again; what was moved off it stays where it is
    #[arg(long)]
    undo: bool,
}

pub(crate) fn run(context: &Context, arguments: EvacuateArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let name = arguments.server;
    if arguments.undo {
        let found = use_again(&store, &name)?;
        if context.json {
            context.object_of(JSON_NAME, &found)?;
        } else {
            context.say(format_args!(
                "new data may be placed on {name} again; `stripewise rebalance --new {name}` lays what spans its class over it too"
            ));
        }
        return Ok(Verdict::Done);
    }
    let evacuated = evacuate(&store, context.voice(), &name, interrupt)?;
    if context.json {
        context.object_of(JSON_NAME, &evacuated)?;
        context.flush()?;
    }
    evacuated.check()?;
    if !context.json {
        let moved = counted(evacuated.moved, "region was", "regions were");
        context.say(format_args!("{name} is empty and takes nothing new; {moved} moved"));
    }
    Ok(Verdict::Done)
}
