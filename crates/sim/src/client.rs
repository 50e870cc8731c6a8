//! Clients: the product's client core (crate `client-core`), carried out with events instead of threads and sockets.

mod background;
mod content;
mod exchange;

use crate::clock::Clock;
use crate::network::Packet;
use crate::trace::{Trace, say};
use crate::workload::Workload;
use crate::world::{Event, World};
use bytes::Bytes;
use client_core::call::{Action, RetryPolicy};
use client_core::connections::{Connections, Era};
use client_core::exchange::{Exchange, Failure, Target};
use client_core::moved::{Moved, file_of};
use client_core::operation::Operation;
use client_core::routes::Routes;
use client_core::set::{Opening, SetState};
use client_core::stripes::StripedFiles;
use core::time::Duration;
use ids::{Epoch, Fid, ServerId, SessionId, SetId};
use std::collections::BTreeMap;
use wire::map::VolumeMap;
use wire::{Body, Errno, Fail, Op, Reply};

/// Releases sent in one go.
const AT_ONCE: usize = 64;
/// How often the background thread looks whether a set has to hear what is open, or was closed.
const HOUSEKEEPING: Duration = Duration::from_millis(500);

/// What happens to a client.
pub(crate) enum ToClient {
    /// It may begin a call.
    Think,
    /// A packet on one of its connections.
    Packet { connection: u64, packet: Packet },
    /// The pause of a call is over.
    Look(u64, u64),
    /// The time of an exchange's step is over, if that was its deadline: call, exchange, deadline.
    TimedOut(u64, u64, Duration),
    /// An exchange could not connect.
    Refused(u64, u64),
    /// The volume's map.
    Map(Box<VolumeMap>),
    /// The background thread looks.
    Keep,
    /// The pause before the next questions about a striped file is over.
    AskParts(usize),
}

/// Who waits for what a client has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Caller {
    /// The background thread.
    Nobody,
    /// Somebody: in the history it is that record.
    Record(usize),
    /// It is one question of that record's, with its group and position.
    Part { record: usize, group: usize, n: usize },
}

/// An exchange under way.
struct Running {
    number: u64,
    exchange: Exchange,
    connection: Option<u64>,
    /// The connection on which it is seen whether the server answers a handshake.
    handshake: Option<u64>,
    last: Option<(Reply, Bytes)>,
}

/// What a client has begun.
struct Task {
    caller: Caller,
    set: SetId,
    op: Option<Op>,
    payload: Bytes,
    operation: Option<Operation>,
    begun: Duration,
    /// Counts exchanges.
    tries: u64,
    running: Option<Running>,
    /// Counts pauses.
    pauses: u64,
    pausing: bool,
}

struct Connected {
    server: ServerId,
    number: u64,
    used: bool,
    frames: u64,
    task: Option<u64>,
}

struct Server {
    connections: Connections,
    idle: Vec<u64>,
}

/// See the module.
pub(crate) struct Client {
    pub(crate) clock: Clock,
    session: SessionId,
    pub(crate) alive: bool,
    timeout: RetryPolicy,
    routes: Option<Routes>,
    sets: BTreeMap<SetId, SetState>,
    servers: BTreeMap<ServerId, Server>,
    next_number: u64,
    connected: BTreeMap<u64, Connected>,
    next_task: u64,
    tasks: BTreeMap<u64, Task>,
    /// Files that went on in other sets while it held them open.
    pub(crate) moved: Moved,
    /// What it knows of striped files, and calls about content under way, by their records.
    striped: StripedFiles,
    contents: BTreeMap<usize, content::Content>,
    /// Tickets of appends.
    tickets: u64,
    pub(crate) work: Workload,
}

impl Client {
    pub(crate) fn new(clock: Clock, session: SessionId, timeout: Duration, work: Workload) -> Client {
        Client {
            clock,
            session,
            alive: true,
            timeout: RetryPolicy {
                soft: None,
                network_timeout: timeout,
                quorum_wait: Duration::ZERO,
                once: false,
            },
            routes: None,
            sets: BTreeMap::new(),
            servers: BTreeMap::new(),
            next_number: 1,
            connected: BTreeMap::new(),
            next_task: 0,
            tasks: BTreeMap::new(),
            moved: Moved::default(),
            striped: StripedFiles::default(),
            contents: BTreeMap::new(),
            tickets: 0,
            work,
        }
    }

    /// Whether it knows the volume's map: before that the product lets nobody call.
    pub(crate) fn is_mounted(&self) -> bool {
        self.routes.is_some()
    }

    /// Calls that somebody waits for.
    pub(crate) fn waits(&self) -> usize {
        let others = |t: &&Task| matches!(t.caller, Caller::Record(n) if !self.contents.contains_key(&n));
        self.tasks.values().filter(others).count() + self.contents.len()
    }

    /// What it waits for, for people.
    pub(crate) fn waiting(&self) -> Vec<String> {
        let words = |t: &Task| {
            let exchange = t.running.as_ref().map(|r| &r.exchange);
            format!("set {} {:?} try {}: {exchange:?}", t.set, t.op, t.tries)
        };
        let waits = self.tasks.values().filter(|t| t.caller != Caller::Nobody).map(words);
        waits.chain(self.contents.keys().map(|record| format!("record {record}"))).collect()
    }

    fn set(&mut self, set: SetId) -> &mut SetState {
        self.sets.entry(set).or_default()
    }

    /// Who serves a set, by the map that holds now.
    fn target(&self, set: SetId) -> Option<Target> {
        let route = self.routes.as_ref()?.get(set)?;
        Some(Target { set, epoch: route.epoch, server: route.server? })
    }

    fn era(&self, server: ServerId) -> Option<Era> {
        self.servers.get(&server).map(|s| s.connections.era())
    }
}

impl World {
    pub(crate) fn tell_client(&mut self, at: Duration, client: usize, what: ToClient) {
        self.at(at, Event::Client { client, what });
    }

    pub(crate) fn on_client(&mut self, c: usize, what: ToClient) {
        if !self.clients[c].alive {
            return;
        }
        Trace::speaker("client", c);
        match what {
            ToClient::Think => self.think(c),
            ToClient::Packet { connection, packet } => self.on_client_packet(c, connection, packet),
            ToClient::Look(id, pause) => self.end_pause(c, id, pause),
            ToClient::TimedOut(id, number, deadline) => {
                let task = self.clients[c].tasks.get(&id);
                let running = task.and_then(|t| t.running.as_ref()).filter(|r| r.number == number);
                if running.is_some_and(|r| r.exchange.deadline() == deadline) {
                    self.fail_exchange(c, id, number, Failure::TimedOut);
                }
            }
            ToClient::Refused(id, number) => self.fail_exchange(c, id, number, Failure::Broke),
            ToClient::Map(map) => self.on_map(c, &map),
            ToClient::AskParts(record) => self.ask_parts(c, record),
            ToClient::Keep => {
                self.keep(c);
                self.tell_client(self.now + HOUSEKEEPING, c, ToClient::Keep);
            }
        }
    }

    fn client_now(&self, c: usize) -> Duration {
        self.clients[c].clock.now(self.now)
    }

    /// A client asks a set for something; the answer goes into the history.
    pub(crate) fn call(&mut self, c: usize, set: SetId, mut op: Op, payload: Bytes) {
        let known_as = file_of(&mut op).copied();
        let set = self.clients[c].moved.redirect(&mut op).unwrap_or(set);
        if let Op::Open { fid } = op {
            match self.clients[c].set(set).open(fid) {
                // No server is asked: this is no answer that could be wrong.
                Opening::Known => return self.clients[c].work.opened(known_as.unwrap_or(fid), set),
                // The product tries again a moment later.
                Opening::Wait => return,
                Opening::Tell => {}
            }
        }
        let record = self.history.begin(c, self.now, set, &op, &payload);
        say!(self, "client {c} begins {record}: set {set} {op:?} {} bytes", payload.len());
        self.begin_content(c, record, set, op, payload);
    }

    /// Asks a set.
    fn begin_task(&mut self, c: usize, caller: Caller, set: SetId, op: Op, payload: Bytes) {
        let begun = self.client_now(c);
        let client = &mut self.clients[c];
        let epoch = client.routes.as_ref().and_then(|r| r.get(set)).map_or(Epoch(0), |r| r.epoch);
        let timeout = client.timeout;
        let operation = Operation::begin(&op, epoch, timeout, || client.sets.entry(set).or_default());
        let id = self.add_task(c, caller, set, Some((op, operation)), payload, begun);
        self.look(c, id);
    }

    fn add_task(
        &mut self,
        c: usize,
        caller: Caller,
        set: SetId,
        what: Option<(Op, Operation)>,
        payload: Bytes,
        begun: Duration,
    ) -> u64 {
        let (op, operation) = what.unzip();
        let client = &mut self.clients[c];
        client.next_task += 1;
        let (running, tries, pauses, pausing) = (None, 0, 0, false);
        let task = Task { caller, set, op, payload, operation, begun, tries, running, pauses, pausing };
        client.tasks.insert(client.next_task, task);
        client.next_task
    }

    /// A client closes a file.
    pub(crate) fn close_file(&mut self, c: usize, set: SetId, fid: Fid) {
        let mut op = Op::Release { fid };
        let set = self.clients[c].moved.redirect(&mut op).unwrap_or(set);
        let now = self.clients[c].moved.now(fid);
        if !self.clients[c].work.holds(fid) {
            self.history.closed(c, self.now, set, now);
        }
        self.clients[c].set(set).close(now);
    }

    /// The file that was asked for goes on as another one: it is asked there. An open file is open there already.
    fn file_moved(&mut self, c: usize, (set, op): (SetId, Op), copy: Fid, record: usize) {
        self.count("open file moved");
        let asked = match op.clone() {
            Op::CopyRange { to, .. } => Some(to),
            Op::Link { fid, .. } => Some(fid),
            mut op => file_of(&mut op).copied(),
        };
        let Some(file) = asked else {
            return self.fail(format!("client {c}: {op:?} was told of a file that moved"));
        };
        let client = &mut self.clients[c];
        let lost_before = client.routes.as_ref().map_or(Epoch(0), |r| r.lost_before(set));
        if client.moved.note(file, copy) {
            let (count, lost) = client.set(set).leave(file, lost_before);
            if lost {
                client.moved.note_lost(copy);
            }
            client.set(copy.set).arrive(copy, count);
        }
        let answer = if let Op::Open { .. } = op { Body::Done } else { Body::Moved { fid: copy } };
        let payload = self.history.get(record).map(|r| r.payload.clone()).unwrap_or_default();
        self.tell_caller(c, record, Ok((answer, Bytes::new())));
        if !matches!(op, Op::Open { .. } | Op::CopyRange { .. } | Op::Link { .. }) {
            let mut again = op;
            file_of(&mut again).into_iter().for_each(|fid| *fid = copy);
            self.call(c, copy.set, again, payload);
        }
    }

    fn tell_caller(&mut self, c: usize, record: usize, answer: Result<(Body, Bytes), Errno>) {
        say!(self, "client {c} ends {record}: {answer:?}");
        self.clients[c].contents.remove(&record);
        self.check_right(c, record, answer.as_ref().err().copied());
        self.history.end(record, self.now, answer);
        self.learn(c, record);
        self.on_final_answer(c, record);
    }

    /// A call looks at the map.
    fn look(&mut self, c: usize, id: u64) {
        let now = self.client_now(c);
        let client = &mut self.clients[c];
        let Some(task) = client.tasks.get_mut(&id) else { return };
        let Some(routes) = &client.routes else { return self.pause(c, id, Duration::from_millis(50)) };
        let (known, begun, set) = (routes.known(task.set), task.begun, task.set);
        let Some(operation) = task.operation.as_mut() else { return };
        let sets = &mut client.sets;
        let action = operation.look(known, || now.saturating_sub(begun), || sets.entry(set).or_default());
        let (binds, policy) = (operation.binds(), operation.retry_policy());
        match (action, self.clients[c].target(set)) {
            (Action::Send(_), Some(target)) => {
                let exchange = Exchange::call(target, policy, now.saturating_sub(begun), binds);
                self.begin_exchange(c, id, exchange);
            }
            (action, _) => self.act(c, id, action),
        }
    }

    fn act(&mut self, c: usize, id: u64, action: Action) {
        match action {
            Action::Return => self.finish(c, id, None),
            Action::Fail(errno) => self.finish(c, id, Some(errno)),
            Action::Look | Action::Send(_) => self.pause(c, id, Duration::ZERO),
            Action::Pause { time, .. } => self.pause(c, id, time),
        }
    }

    fn pause(&mut self, c: usize, id: u64, time: Duration) {
        let Some(task) = self.clients[c].tasks.get_mut(&id) else { return };
        task.pauses += 1;
        task.pausing = true;
        let pause = task.pauses;
        self.tell_client(self.now + time, c, ToClient::Look(id, pause));
    }

    fn end_pause(&mut self, c: usize, id: u64, pause: u64) {
        let Some(task) = self.clients[c].tasks.get_mut(&id) else { return };
        if task.pausing && task.pauses == pause {
            task.pausing = false;
            self.look(c, id);
        }
    }

    fn answer_call(&mut self, c: usize, id: u64, (reply, payload): (Reply, Bytes)) {
        if let Some(task) = self.clients[c].tasks.get_mut(&id) {
            task.payload = payload;
        }
        match reply.0 {
            Ok(body) => self.finish_with(c, id, Ok(body)),
            Err(Fail::Errno { errno }) => self.finish_with(c, id, Err(Errno(errno))),
            Err(fail) => self.fail(format!("client {c}: a call returned {fail:?}")),
        }
    }

    fn finish(&mut self, c: usize, id: u64, errno: Option<Errno>) {
        match errno {
            Some(errno) => self.finish_with(c, id, Err(errno)),
            None => self.fail(format!("client {c}: a call returned without an answer")),
        }
    }

    /// A call ends.
    fn finish_with(&mut self, c: usize, id: u64, answer: Result<Body, Errno>) {
        let client = &mut self.clients[c];
        let Some(task) = client.tasks.remove(&id) else { return };
        let (Some(operation), Some(op)) = (task.operation, task.op) else { return };
        let Client { sets, routes, .. } = client;
        let lost_before = || routes.as_ref().map_or(Epoch(0), |r| r.lost_before(task.set));
        let as_answered = answer.as_ref().map(|_| ()).map_err(|e| *e);
        let finished = operation.finish(&op, as_answered, lost_before, || sets.entry(task.set).or_default());
        if finished.result.is_err() && answer.is_ok() {
            self.count("sync told of a loss");
        }
        let mut answer = finished.result.and(answer);
        let record = match task.caller {
            Caller::Record(record) => record,
            Caller::Part { record, group, n } => {
                let answer = answer.map(|body| (body, task.payload));
                return self.part_answered(c, (record, group, n), answer);
            }
            Caller::Nobody => return,
        };
        match (&op, &answer) {
            (Op::GetAttrs { .. }, Ok(Body::Attrs { attrs })) if !attrs.is_empty() => {
                self.count("attributes of several objects");
            }
            (Op::GetAttrs { .. }, Err(_)) => self.count("attributes of several objects given up"),
            _ => {}
        }
        if let (Op::CopyRange { .. }, Err(Errno::EOPNOTSUPP)) = (&op, &answer) {
            // Of a striped file the data is sent through the client, as between sets.
            answer = Err(Errno::EXDEV);
        }
        if self.turns_striped(c, record, (task.set, &op), &answer) {
            return;
        }
        if let Ok(Body::Moved { fid }) = answer {
            return self.file_moved(c, (task.set, op), fid, record);
        }
        let mut again = op.clone();
        if answer == Err(Errno::ESTALE)
            && let Some(set) = self.clients[c].moved.redirect(&mut again)
            && !matches!(op, Op::Open { .. })
        {
            // It moved while it was asked for.
            let payload = self.history.get(record).map(|r| r.payload.clone()).unwrap_or_default();
            self.tell_caller(c, record, Err(Errno::ESTALE));
            return self.call(c, set, again, payload);
        }
        let state = self.clients[c].set(task.set);
        match (&op, &answer) {
            (Op::Open { fid }, Ok(_)) => state.opened(*fid),
            (Op::Open { fid }, Err(e)) => drop(state.open_failed(*fid, *e)),
            (Op::Create { open: true, .. }, Ok(Body::Attr { attr })) => state.created(attr.fid),
            _ => {}
        }
        self.tell_caller(c, record, answer.map(|body| (body, task.payload)));
    }
}

impl Client {
    fn running(&mut self, id: u64) -> Option<&mut Running> {
        self.tasks.get_mut(&id)?.running.as_mut()
    }
}
