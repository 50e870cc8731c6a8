//! Goes through all orders of steps that a world may take.

use std::collections::BTreeSet;
use std::fmt::Debug;

/// The number of states, of which each is `sound`, or how it went wrong and by which steps.
pub(crate) fn search<W: Clone + Ord, S: Copy + Debug>(
    first: W,
    sound: impl Fn(&W) -> Result<(), String>,
    steps: impl Fn(&W) -> Vec<S>,
    take: impl Fn(&mut W, S),
) -> Result<usize, String> {
    let mut seen = BTreeSet::from([first.clone()]);
    let mut waiting = vec![(first, Vec::new())];
    while let Some((world, path)) = waiting.pop() {
        sound(&world).map_err(|e| format!("{e}, after {path:?}"))?;
        for step in steps(&world) {
            let mut next = world.clone();
            take(&mut next, step);
            if seen.insert(next.clone()) {
                let mut path = path.clone();
                path.push(step);
                waiting.push((next, path));
            }
        }
    }
    Ok(seen.len())
}
