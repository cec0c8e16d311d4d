//! `stripewise broker`: serve a cluster until stopped.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use stripewise::messages::shown;
use stripewise::store::{serve, wait_until_idle};

/// Serve the cluster until Ctrl-C, for programs that are not started by `stripewise run`
///
/// Every other command is the broker while it runs, so this one is needed only when programs are started by other means, with
/// LD_PRELOAD and STRIPEWISE_STATE in their environment.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise broker &
  stripewise broker --until-idle &")]
pub(crate) struct BrokerArgs {
    /// End when no program of this host uses the cluster any more, or at once where another process serves it; programs of a run on several
    /// hosts start it so
    #[arg(long)]
    until_idle: bool,
}

pub(crate) fn run(context: &Context, arguments: BrokerArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let cluster = context.session.cluster()?;
    let broker = serve(&context.session, &cluster)?;
    if broker.is_serving() {
        context.say(format_args!("serving {}", shown(&cluster.state)));
    } else {
        context.say(format_args!("another process serves {}; waiting to follow it", shown(&cluster.state)));
    }
    if arguments.until_idle {
        if broker.is_serving() {
            wait_until_idle(&broker, interrupt);
        }
    } else {
        interrupt.wait();
    }
    drop(broker);
    Ok(Verdict::Done)
}
