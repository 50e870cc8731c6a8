//! Layers: small units that an operation passes through on its way to the servers, each addable per volume.

use wire::{Body, Call, Errno};

use crate::call::Core;
use crate::payload::Payload;

/// An operation on its way.
#[derive(Debug)]
pub struct Request<'a, 'b> {
    /// The set and the operation; the other fields are filled in by routing.
    pub call: Call,
    /// Data of the request.
    pub payload: &'a [u8],
    /// Takes the data of the answer.
    pub into: &'a mut Payload<'b>,
}

/// A unit that operations pass through. It may look, refuse, answer itself, or change what passes.
pub trait Layer: Send + Sync {
    /// Its name in logs.
    fn name(&self) -> &'static str;

    /// Handles an operation; `next` hands it on.
    ///
    /// # Errors
    /// The operation's errno.
    fn pass(&self, request: &mut Request<'_, '_>, next: Next<'_>) -> Result<Body, Errno>;
}

/// The layers below, and routing beneath them all.
pub struct Next<'a> {
    pub(crate) layers: &'a [Box<dyn Layer>],
    pub(crate) core: &'a Core,
}

impl Next<'_> {
    /// Hands the operation on.
    ///
    /// # Errors
    /// The operation's errno.
    pub fn run(self, request: &mut Request<'_, '_>) -> Result<Body, Errno> {
        match self.layers.split_first() {
            Some((layer, layers)) => layer.pass(request, Next { layers, core: self.core }),
            None => self.core.route(request),
        }
    }
}

/// Refuses every change.
#[derive(Clone, Copy, Debug)]
pub struct ReadOnly;

impl Layer for ReadOnly {
    fn name(&self) -> &'static str {
        "read-only"
    }

    fn pass(&self, request: &mut Request<'_, '_>, next: Next<'_>) -> Result<Body, Errno> {
        if request.call.op.changes() { Err(Errno::EROFS) } else { next.run(request) }
    }
}
