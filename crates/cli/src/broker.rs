//! `stripewise broker`: serve a cluster until stopped.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use anyhow::Result;
use clap::Args;
use stripewise::store::serve;

/// Serve the cluster until Ctrl-C, for programs that are not started by `stripewise run`
///
/// Every other command is the broker while it runs, so this one is needed only when programs are started by other means, with
/// LD_PRELOAD and STRIPEWISE_STATE in their environment.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  stripewise broker &")]
pub(crate) struct BrokerArgs {}

pub(crate) fn run(context: &Context, _arguments: BrokerArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let cluster = context.session.cluster()?;
    let broker = serve(&context.session, &cluster)?;
    if broker.is_serving() {
        context.say(format_args!("serving {}", cluster.state.display()));
    } else {
        context.say(format_args!("another process serves {}; waiting to follow it", cluster.state.display()));
    }
    interrupt.wait();
    drop(broker);
    Ok(Verdict::Done)
}
