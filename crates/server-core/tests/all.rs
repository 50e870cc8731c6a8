//! All tests as one program: it is compiled and linked once.

mod arbitration_run;
mod ask;
mod hostile;
mod leases;
mod levels;
mod opening;
mod pool;
