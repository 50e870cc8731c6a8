//! `mortar volume`: what can be mounted.

mod activity;
mod add_brick;
mod adopt;
mod changed;
mod create;
mod delete;
mod get;
mod heal;
mod import;
mod info;
mod list;
mod profile;
mod promote;
mod rebalance;
mod remove_brick;
mod replace_brick;
mod reset;
mod set;
mod start;
pub(super) mod status;
mod stop;
mod top;

use crate::cli::Global;
use clap::Subcommand;

/// Make, start, look at and tune volumes.
#[derive(Subcommand, Debug)]
pub(crate) enum Volume {
    Create(create::Create),
    AddBrick(add_brick::AddBrick),
    RemoveBrick(remove_brick::RemoveBrick),
    ReplaceBrick(replace_brick::ReplaceBrick),
    Start(start::Start),
    Stop(stop::Stop),
    Delete(delete::Delete),
    Import(import::Import),
    Info(info::Info),
    Status(status::StatusCommand),
    Profile(profile::ProfileCommand),
    Top(top::TopCommand),
    List(list::List),
    Set(set::Set),
    Get(get::Get),
    Reset(reset::Reset),
    Heal(heal::Heal),
    Promote(promote::Promote),
    Adopt(adopt::Adopt),
    Rebalance(rebalance::RebalanceCommand),
}

impl Volume {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        match self {
            Volume::Create(c) => c.run(global),
            Volume::AddBrick(c) => c.run(global),
            Volume::RemoveBrick(c) => c.run(global),
            Volume::ReplaceBrick(c) => c.run(global),
            Volume::Start(c) => c.run(global),
            Volume::Stop(c) => c.run(global),
            Volume::Delete(c) => c.run(global),
            Volume::Import(c) => c.run(global),
            Volume::Info(c) => c.run(global),
            Volume::Status(c) => c.run(global),
            Volume::Profile(c) => c.run(global),
            Volume::Top(c) => c.run(global),
            Volume::List(c) => c.run(global),
            Volume::Set(c) => c.run(global),
            Volume::Get(c) => c.run(global),
            Volume::Reset(c) => c.run(global),
            Volume::Heal(c) => c.run(global),
            Volume::Promote(c) => c.run(global),
            Volume::Adopt(c) => c.run(global),
            Volume::Rebalance(c) => c.run(global),
        }
    }
}
