//! What Linux answers: file operations carried out on a directory of the machine's tmpfs. Tests only.
//!
//! Owns: [`Oracle`], which does each [`wire::Op`] with the kernel's own calls, [`compare`], which tells where Mortar's
//! answer is another one than the kernel's, and [`draw`], which makes up operations. Nothing here uses `namespace::decide`:
//! a rule that Mortar has wrong is not wrong here in the same way.
//!
//! What must always be true: objects are named by the fids that the tested system gave them, and held by descriptors, so
//! that a file lives as long as it has a name or is open. Where Mortar differs from Linux on purpose, and where its clients'
//! kernels answer before it is asked, a row of [`Difference`] says so; nothing else may differ.
//!
//! Not compared: inode numbers, blocks, sizes of directories, the order of listings, and times that the server chose.

mod answer;
mod attributes;
mod content;
mod credentials;
mod difference;
mod draw;
mod kernel;
mod names;
mod oracle;

pub use answer::{Answer, Moment, Seen, compare};
pub use difference::Difference;
pub use draw::{Known, draw};
pub use oracle::Oracle;
