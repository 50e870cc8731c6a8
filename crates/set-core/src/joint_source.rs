//! Where a rename from another set comes from, if that is no file of that set (docs/design/0019): a stub, whose file's home is asked
//! first, or a directory.

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::io::ReplyTo;
use crate::joint::{Joint, decider, is_gone, part_of};
use crate::moves::DIR;
use alloc::boxed::Box;
use namespace::Need;
use wire::op::EntryName;
use wire::{Body, Errno, Fail, Op};

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Where a file comes from that lives neither there, nor perhaps here.
    pub(crate) fn look_at_source(&mut self, cx: &mut Cx<'_, B, R>, joint: Box<Joint<R>>) {
        let Some((from, EntryName { dir, name })) = joint.comes_from() else {
            return self.give_up(cx, *joint, Errno::EXDEV.into());
        };
        self.ask(cx, Asking::SourceLooked(joint), from, Op::Lookup { parent: dir, name }, None);
    }

    /// The set where the file comes from has said where it lives: its home is asked first.
    pub(crate) fn on_source_looked(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut joint: Box<Joint<R>>,
        answer: Result<Body, Fail>,
    ) {
        let found = match answer {
            Ok(Body::Elsewhere { fid, home, kind: DIR }) => {
                return self.ask_for_directory(cx, joint, (fid, home));
            }
            Ok(Body::Elsewhere { fid, home, .. }) => (fid, home),
            Ok(Body::Attr { attr }) if !attr.is_dir() => return self.give_up(cx, *joint, Fail::Busy),
            Ok(Body::Attr { attr }) => return self.ask_for_directory(cx, joint, (attr.fid, attr.home)),
            Ok(_) => return self.give_up(cx, *joint, Errno::EXDEV.into()),
            Err(fail) => return self.give_up(cx, *joint, fail),
        };
        let before = joint.source;
        match before {
            None => {}
            // The stub is still there; its home has agreed, and the stub's set does not know how.
            Some(source) if source == found && joint.incoming.is_some() => {
                return self.give_up(cx, *joint, Errno::EXDEV.into());
            }
            Some(source) if source == found && !joint.misses_again() => {}
            Some(source) if source == found => return self.give_up(cx, *joint, Errno::ENOENT.into()),
            Some(_) => return self.give_up(cx, *joint, Fail::Busy),
        }
        let Some((add_dir, add_name)) = decider(&joint.op) else {
            return self.give_up(cx, *joint, Errno::EINVAL.into());
        };
        let add = Some(EntryName { dir: add_dir, name: add_name.clone() });
        let drop = joint.comes_from().map(|(_, drop)| drop);
        joint.source = Some(found);
        let (fid, home) = found;
        let need = Need::of_names(home, Some(fid), drop, add);
        if home == self.set {
            return self.ask_home(cx, joint, need);
        }
        let op = Op::CheckMark { fid, tx: joint.transaction.tx };
        self.ask(cx, Asking::HomeKnows(joint, need), home, op, None);
    }

    /// The home of a file that a third set has a stub of has answered the question that it will get from there. An older server
    /// does not know it: nothing is marked then, as nobody could ask how that ends.
    pub(crate) fn on_home_knows(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        joint: Box<Joint<R>>,
        need: Need,
        answer: Result<Body, Fail>,
    ) {
        match answer {
            Ok(_) => self.ask_home(cx, joint, need),
            Err(Fail::Errno { errno }) if is_gone(errno) => self.ask_home(cx, joint, need),
            Err(Fail::Errno { errno }) if errno == Errno::EINVAL.0 => {
                self.give_up(cx, *joint, Errno::EXDEV.into());
            }
            Err(fail) => self.give_up(cx, *joint, fail),
        }
    }

    /// The set of a stub has marked it, or not.
    pub(crate) fn on_stub_agreed(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut joint: Box<Joint<R>>,
        need: &Need,
        answer: Result<Body, Fail>,
    ) {
        match (answer, need.fid) {
            (Ok(Body::Elsewhere { fid, .. }), Some(wanted)) if fid == wanted => {
                joint.agreed.push(need.clone());
                self.bring_mark_to_disk(cx, joint, (need.home, fid), (part_of(need), false));
            }
            (Ok(_), _) => self.give_up(cx, *joint, Errno::EIO.into()),
            // An older server looks for a file of its own.
            (Err(Fail::Errno { errno }), _) if is_gone(errno) => self.look_at_source(cx, joint),
            (Err(fail), _) => self.give_up(cx, *joint, fail),
        }
    }
}
