//! What a panic does to servers and mounts.

/// From now on a panic ends the process, as release builds do by themselves: builds for tests would go on without one of their
/// threads or tasks, and nobody would notice. For processes that have nothing to take down.
pub fn end_at_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}
