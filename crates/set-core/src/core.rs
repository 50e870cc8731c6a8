//! The state machine: its state, its inputs, and the steps that follow from an input.

use crate::brick::LocalBrick;
use crate::catch_up::CatchUps;
use crate::content::Content;
use crate::departures::Departures;
use crate::elsewhere::Asking;
use crate::failure_detector::FailureDetector;
use crate::flush::Flush;
use crate::grants::Grants;
use crate::hand_over::HandOver;
use crate::io::{Done, Input, Moment, Output, Outside, ReplyTo, Request, Settings};
use crate::joiners::Lag;
use crate::joint_ends::Decided;
use crate::known_places::Beneath;
use crate::moves::Tree;
use crate::opens::Opens;
use crate::orphans::Orphans;
use crate::paths::Paths;
use crate::pauses::Pauses;
use crate::pending::Pending;
use crate::pieces::Pieces;
use crate::placing::Placing;
use crate::questions::Questions;
use crate::recovery::Announcement;
use crate::refusals::Refusals;
use crate::stripes::Striping;
use crate::sync::{Periodic, Rounds};
use crate::target::Target;
use crate::tickets::Tickets;
use crate::timers::Timers;
use crate::trash::Trash;
use crate::waiters::{Address, Waiter};
use crate::walks::Walks;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;
use ids::{BrickId, Epoch, Fid, Lsn, OpId, SetId};
use namespace::lock_right::LockRight;
use namespace::transaction::Transactions;
use replica::{LogEntry, Proposal, Replica, Role, SyncToken, Ticket};
use wire::peer::PeerBody;
use wire::{Errno, Fail};

/// A brick that was opened, and what its journal tells.
pub struct Start<B> {
    /// Its set.
    pub set: SetId,
    /// Its number.
    pub me: BrickId,
    /// It acts only in views newer than this.
    pub floor: Epoch,
    /// It has to heal before it takes part.
    pub uncertain: bool,
    /// The brick.
    pub brick: B,
    /// Outcomes of operations.
    pub results: replica::Results,
    /// Directories that wait for the end of a transaction.
    pub pending: Pending,
    /// The last position of each epoch.
    pub history: BTreeMap<Epoch, Lsn>,
}

/// What a step is taken with.
pub(crate) struct Cx<'a, B: LocalBrick, R> {
    pub(crate) at: Moment,
    pub(crate) outside: &'a dyn Outside,
    pub(crate) out: &'a mut Vec<Output<B::Work, R>>,
}

/// What an input leads to, in this order, before the next input is taken.
#[derive(Debug)]
pub(crate) enum Next<R> {
    /// Carry out a change on the brick.
    Apply(LogEntry<Content>, Option<Ticket>),
    /// This brick goes on alone: its journal ends where it is certain of it.
    AdoptHistory,
    /// The replication core is told what the brick did or showed, which may have taken long: at the time it is then.
    Feed(replica::Input<Content>),
    /// Work could not be begun.
    Failed(Purpose<R>, Errno),
}

/// What the core does of its own accord when nothing else follows from an input: one at a time, each by the clock.
#[derive(Debug)]
pub(crate) enum Later {
    /// Drop a nameless file, if nobody holds it.
    DropOrphan(Fid),
    /// Names in a directory of another set are to lie at its path.
    PutAtPath(crate::paths::PathTo),
    /// Tell another set where its directory hangs that was renamed here.
    TellPlace(Fid),
    /// Tell the others of an object that may not be what the journal made of it, in the turn that began then.
    Announce(Duration),
    /// Answer a question of a joining brick, in the turn that began then.
    AnswerOne(Duration),
    /// Write a slice of the attributes, in the turn that began then.
    Flush(Duration),
    /// Write some of it again that a failed sync may have dropped, in the turn that began then, or begins with it.
    WriteAgain(Option<Duration>),
    /// A slice of what a joining brick missed was sent, in the turn that began then.
    EndSlice(BrickId, Duration),
    /// Forget an object of the heal trash, in the turn that began then, or begins with it.
    ForgetTrash(Option<Duration>),
    /// Look again at an object that the primary does not have, in the healing of that number and the turn that began then.
    LookAtAbsent(u64, Duration),
}

/// What work on the brick is for.
#[derive(Debug)]
pub(crate) enum Purpose<R> {
    /// A round of syncs that were asked for.
    Round(Vec<SyncToken>),
    /// The sync of now and then.
    Periodic,
    /// The end of the stale set on a brick that was alone.
    ClearStaleSet,
    /// What lies in the heal trash, which is forgotten before what follows.
    Trash(crate::flush::Then),
    /// Files without a name, to drop those that nobody holds.
    Orphans,
    /// The end of this brick's healing of that number.
    EndHealing(u64),
    /// This brick's checksums, to compare with the primary's, in the healing of that number.
    Compare(u64, Fid, u64, replica::healing::Sums),
    /// Checksums for a joining brick, begun then.
    SendSums(BrickId, crate::questions::SumsAsked, Duration),
    /// Data for a joining brick is brought into memory.
    Warm(BrickId, PeerBody, u32),
    /// Data for a client.
    Read(Fid, Address<R>),
    /// Names of a directory, for a client.
    List(crate::read::Page, Address<R>),
    /// What a page of them leads to, for a client.
    ListPage(crate::read::Page, Address<R>),
    /// Entries of a directory for a joining brick, asked for in that epoch, after that position.
    SendEntries(BrickId, Epoch, Fid, u64),
    /// Names of a directory here, to be compared with the primary's in the healing of that number.
    Prepare(u64, Fid, u64),
    /// What those lead to that follow that position: then the primary is asked.
    PreparePage(u64, Fid, u64),
    /// What a comparison from the root does not meet here, for that joining brick, in the walk of that number.
    Walk(BrickId, u64),
    /// The same on this brick, in the healing of that number.
    OwnWalk(u64),
    /// Data of a file that moves to another set, by its number.
    Departing(u64),
    /// To find files that may move to other sets.
    Rebalance(crate::rebalance::Look),
    /// What may lie elsewhere than at its path.
    Paths,
}

/// What is due at a time.
#[derive(Debug)]
pub(crate) enum Due<R> {
    /// A request that waited for what was granted to others.
    Request(Request<R>),
    /// Syncs that were asked for.
    Syncs,
    /// The next turn of answers to joining bricks.
    Answers,
    /// The next turn of writing attributes.
    Flush,
    /// The next turn of writing again what a failed sync may have dropped.
    WriteAgain,
    /// The next turn of telling what is stale.
    Announce,
    /// The next turn of forgetting the heal trash.
    Trash,
    /// The next turn of looking at what the primary does not have, in the healing of that number.
    Absent(u64),
    /// The next slice of what a joining brick missed.
    CatchUp(BrickId, u64),
    /// Checksums for a joining brick, in the epoch in which it asked.
    Sums(BrickId, Epoch, PeerBody),
    /// What comes next of a file that moves to another set, by its number.
    Departure(u64),
    /// The next page of a directory whose files may move.
    Rebalance,
    /// What is next for directories that are given away.
    HandOver,
}

/// All that one server decides for one set. See the crate's words.
///
/// An input is given to [`SetCore::step`]; while [`SetCore::is_busy`] then says so, [`SetCore::go_on`] has to be called, each
/// time after the outputs were carried out and with the time read anew: what was done on the brick took time, and an answer
/// may leave only while the server's lease holds.
pub struct SetCore<B: LocalBrick, R> {
    pub(crate) set: SetId,
    pub(crate) me: BrickId,
    pub(crate) brick: B,
    pub(crate) replica: Replica<Content>,
    pub(crate) lease: Duration,
    pub(crate) settings: Settings,
    /// Bytes that stay free.
    pub(crate) min_free: u64,
    pub(crate) next: VecDeque<Next<R>>,
    pub(crate) later: VecDeque<Later>,
    pub(crate) timers: Timers<Due<R>>,
    pub(crate) waiters: Tickets<Waiter<R>>,
    pub(crate) works: Tickets<Purpose<R>>,
    pub(crate) asks: Tickets<Asking<R>>,
    /// Kept to be used again.
    outputs: Vec<replica::Output<Content>>,
    pub(crate) opens: Opens,
    /// What is known of places, for clients whose keys are for what lies beneath a directory.
    pub(crate) beneath: Beneath,
    pub(crate) grants: Grants,
    /// Directories that wait for the end of a transaction.
    pub(crate) pending: Pending,
    /// When this brick became primary.
    pub(crate) primary_since: Option<Duration>,
    /// The newest epoch in which it led.
    pub(crate) led_in: Epoch,
    pub(crate) orphans: Orphans,
    /// Transactions that wait for another set.
    pub(crate) transactions: Transactions,
    pub(crate) refusals: Refusals,
    pub(crate) pauses: Pauses,
    /// Transactions about files whose entry is ordered: what brings it to disk, and who agreed.
    pub(crate) joints: BTreeMap<OpId, Decided>,
    pub(crate) tree: Tree,
    /// Of the root's set: which session grants locks.
    pub(crate) lock_right: LockRight,
    pub(crate) departures: Departures,
    pub(crate) hand_over: HandOver,
    pub(crate) placing: Placing<R>,
    /// Files of this set whose data lies on several sets, and pieces of others' here.
    pub(crate) striping: Striping<R>,
    pub(crate) pieces: Pieces,
    pub(crate) paths: Paths,
    pub(crate) flush: Flush,
    pub(crate) rounds: Rounds,
    pub(crate) trash: Trash,
    /// What a failed sync may have dropped is being written again.
    pub(crate) writing_again: bool,
    pub(crate) periodic: Periodic,
    pub(crate) target: Target,
    pub(crate) catch_ups: CatchUps,
    pub(crate) questions: Questions,
    pub(crate) walks: Walks,
    pub(crate) lag: Lag,
    pub(crate) announcement: Announcement,
    /// The proposal that the log tells of.
    proposed: Option<Proposal>,
    pub(crate) failure_detector: FailureDetector,
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// The core of a set whose brick was just opened.
    pub fn new(start: Start<B>, now: Duration) -> SetCore<B, R> {
        let (last, durable) = (start.brick.last(), start.brick.durable());
        let mut replica = Replica::new(start.me, start.floor, last, durable, start.results);
        replica.set_history(start.history);
        if start.uncertain {
            replica.set_uncertain(false);
        }
        SetCore {
            set: start.set,
            me: start.me,
            settings: Settings::unknown(start.set, replica.view().clone()),
            brick: start.brick,
            replica,
            lease: Duration::ZERO,
            min_free: 0,
            next: VecDeque::new(),
            later: VecDeque::new(),
            timers: Timers::default(),
            waiters: Tickets::default(),
            works: Tickets::default(),
            asks: Tickets::default(),
            outputs: Vec::new(),
            opens: Opens::default(),
            beneath: Beneath::default(),
            grants: Grants::default(),
            pending: start.pending,
            primary_since: None,
            led_in: Epoch(0),
            orphans: Orphans::default(),
            transactions: Transactions::default(),
            refusals: Refusals::default(),
            pauses: Pauses::default(),
            joints: BTreeMap::new(),
            tree: Tree::new(start.set),
            lock_right: LockRight::default(),
            departures: Departures::default(),
            hand_over: HandOver::default(),
            placing: Placing::default(),
            striping: Striping::default(),
            pieces: Pieces::default(),
            paths: Paths::default(),
            flush: Flush::default(),
            rounds: Rounds::default(),
            trash: Trash::default(),
            writing_again: false,
            periodic: Periodic::new(now),
            target: Target::default(),
            catch_ups: CatchUps::default(),
            questions: Questions::default(),
            walks: Walks::default(),
            lag: Lag::default(),
            announcement: Announcement::default(),
            proposed: None,
            failure_detector: FailureDetector::default(),
        }
    }

    /// Takes one input and appends what is to be done.
    pub fn step(
        &mut self,
        at: Moment,
        input: Input<R>,
        outside: &dyn Outside,
        out: &mut Vec<Output<B::Work, R>>,
    ) {
        assert!(!self.is_busy(), "what follows from an input is done before the next one is taken");
        let cx = &mut Cx { at, outside, out };
        match input {
            Input::Request(request) => self.serve(cx, request),
            Input::Peer(message, payload) => self.on_peer(cx, message, payload),
            Input::Settings(settings) => self.on_settings(cx, settings),
            Input::Link(server, up) => self.on_link(cx, server, up),
            Input::SessionEnded(session) => self.end_session(session),
            Input::Tick => self.tick(cx),
            Input::Maintenance => self.maintain(cx),
            Input::LookAtDisk => self.look_at_disk(cx),
            Input::Move(file) => self.begin_departure(cx, file),
            Input::Give(fid, to) => _ = self.begin_giving(cx, fid, to),
            Input::Wake => self.on_wake(cx),
            Input::Worked(id, result) => {
                if let Some(purpose) = self.works.take(id) {
                    self.on_worked(cx, purpose, result);
                }
            }
            Input::Answered(id, answer) => {
                if let Some(asking) = self.asks.take(id) {
                    self.on_answered(cx, asking, answer);
                }
            }
        }
    }

    /// Whether something still follows from the last input.
    pub fn is_busy(&self) -> bool {
        !self.next.is_empty() || !self.later.is_empty()
    }

    /// Does the next thing that follows from the last input.
    pub fn go_on(&mut self, at: Moment, outside: &dyn Outside, out: &mut Vec<Output<B::Work, R>>) {
        let cx = &mut Cx { at, outside, out };
        match self.next.pop_front() {
            Some(Next::Apply(entry, ticket)) => self.apply(cx, entry, ticket),
            Some(Next::AdoptHistory) => self.adopt_history(),
            Some(Next::Feed(input)) => self.feed(cx, input),
            Some(Next::Failed(purpose, e)) => self.on_worked(cx, purpose, Err(e)),
            None => match self.later.pop_front() {
                Some(Later::DropOrphan(fid)) => self.drop_orphan(cx, fid),
                Some(Later::PutAtPath(place)) => self.put_at_path(cx, place),
                Some(Later::TellPlace(fid)) => self.send_place(cx, fid),
                Some(Later::Announce(begun)) => self.announce_one(cx, begun),
                Some(Later::Flush(begun)) => self.flush_on(cx, begun),
                Some(Later::ForgetTrash(begun)) => self.forget_trash_on(cx, begun),
                Some(Later::WriteAgain(begun)) => self.write_again_on(cx, begun),
                Some(Later::AnswerOne(begun)) => self.answer_one(cx, begun),
                Some(Later::EndSlice(brick, begun)) => self.end_slice(cx, brick, begun),
                Some(Later::LookAtAbsent(healing, begun)) => self.look_at_absent(cx, healing, begun),
                None => {}
            },
        }
    }

    /// When [`Input::Wake`] is to come next.
    pub fn next_wake(&self) -> Option<Duration> {
        self.timers.next()
    }

    /// Ends service: nobody who waits is answered.
    pub fn close(&mut self, out: &mut Vec<Output<B::Work, R>>) {
        let epoch = self.replica.view().epoch;
        self.waiters.drain().for_each(|w| w.refuse(Fail::WrongView { epoch }, out));
    }

    /// The brick, to close it.
    pub fn brick_mut(&mut self) -> &mut B {
        &mut self.brick
    }

    /// Whether the brick could not go on and has to be opened anew.
    pub fn has_failed(&self) -> bool {
        self.replica.role() == Role::Failed
    }

    fn on_worked(&mut self, cx: &mut Cx<'_, B, R>, purpose: Purpose<R>, result: Result<Done, Errno>) {
        match purpose {
            Purpose::Round(tokens) => self.end_round(cx, tokens, result),
            Purpose::Periodic => self.end_periodic(cx, result),
            Purpose::ClearStaleSet => self.on_stale_synced(cx, result),
            Purpose::EndHealing(healing) => self.on_healing_synced(cx, healing, result),
            Purpose::Trash(then) => self.on_trash(cx, then, result),
            Purpose::Orphans => self.on_orphans(cx, result),
            Purpose::Compare(healing, fid, offset, there) => {
                let here =
                    result.and_then(|done| if let Done::Sums(s) = done { Ok(s) } else { Err(Errno::EIO) });
                self.compare(cx, healing, (fid, offset), &there, here);
            }
            Purpose::SendSums(to, asked, begun) => self.on_sums(cx, to, asked, begun, result),
            Purpose::Warm(to, question, tries) => self.answer_question(cx, to, question, tries + 1),
            Purpose::Read(fid, to) => self.on_read(cx, fid, to, result),
            Purpose::List(page, to) => self.prepare_shown_page(cx, page, to),
            Purpose::ListPage(page, to) => self.show_read_page(cx, page, to),
            Purpose::SendEntries(to, epoch, fid, after) => {
                if self.is_primary() && self.replica.view().epoch == epoch {
                    self.send_read_entries(cx, to, fid, after);
                }
            }
            Purpose::Prepare(healing, fid, after) => self.on_names(cx, healing, fid, after),
            Purpose::PreparePage(healing, fid, after) => self.on_prepared(cx, healing, fid, after),
            Purpose::Walk(to, number) => self.on_walked(cx, to, number, result),
            Purpose::OwnWalk(healing) => self.end_own_walk(cx, healing, result),
            Purpose::Departing(number) => self.on_departing_data(cx, number, result),
            Purpose::Rebalance(look) => self.on_looked(cx, look, result),
            Purpose::Paths => self.on_listed(cx, result),
        }
    }

    /// Begins work on the brick.
    pub(crate) fn start(&mut self, cx: &mut Cx<'_, B, R>, purpose: Purpose<R>, work: Result<B::Work, Errno>) {
        match work {
            Ok(work) => cx.out.push(Output::Start { id: self.works.issue(purpose), work }),
            Err(e) => self.next.push_back(Next::Failed(purpose, e)),
        }
    }

    /// Gives the replication core an input and does what it says.
    pub(crate) fn feed(&mut self, cx: &mut Cx<'_, B, R>, input: replica::Input<Content>) {
        let now = cx.at.now;
        let mut outputs = core::mem::take(&mut self.outputs);
        if let Some(lease) = cx.at.lease.filter(|lease| *lease != self.lease) {
            self.lease = lease;
            self.replica.step(now, replica::Input::Lease(lease), &mut outputs);
        }
        self.replica.step(now, input, &mut outputs);
        if !matches!(self.replica.role(), Role::Idle | Role::Healing) {
            self.target.healing = None;
        }
        outputs.drain(..).for_each(|output| self.perform(cx, output));
        self.outputs = outputs;
    }

    fn perform(&mut self, cx: &mut Cx<'_, B, R>, output: replica::Output<Content>) {
        use replica::Output;
        match output {
            Output::Apply(entry, ticket) => self.next.push_back(Next::Apply(entry, ticket)),
            Output::Replicate { to, epoch, commit, entry } => self.replicate(cx, to, epoch, commit, entry),
            Output::Send { to, epoch, message } => self.send_message(cx, to, epoch, message),
            Output::Sync { token, fid } => {
                if self.rounds.ask(token, fid) {
                    self.timers.set(cx.at.now, Due::Syncs);
                }
            }
            Output::Complete(ticket) => self.complete(cx, ticket),
            Output::Fail(ticket, errno) => {
                if let Some(waiter) = self.waiters.take(ticket) {
                    waiter.refuse(Fail::Errno { errno }, cx.out);
                }
            }
            Output::Redirect(ticket) => {
                let epoch = self.replica.view().epoch;
                if let Some(waiter) = self.waiters.take(ticket) {
                    waiter.refuse(Fail::WrongView { epoch }, cx.out);
                }
            }
            Output::Propose(proposal) => {
                // It is repeated until the pool store answers, which may take as long as a link stays cut.
                if self.proposed.as_ref() != Some(&proposal) {
                    tracing::info!(
                        "{}: propose {:?}: {}",
                        self.settings.name,
                        proposal.in_sync,
                        proposal.reason
                    );
                    self.proposed = Some(proposal.clone());
                }
                cx.out.push(crate::Output::Propose(proposal));
            }
            Output::AdoptHistory => self.next.push_back(Next::AdoptHistory),
            Output::Diverged => {
                tracing::error!("{}: brick {} left the common history", self.settings.name, self.me)
            }
        }
    }
}
