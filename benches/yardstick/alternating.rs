//! One call measured in two forms, block by block in turn, so that both meet the same machine.

use std::time::Instant;

use crate::{median, seconds};

/// The median microseconds of ours and of the other, over so many blocks of each, with so many calls in a block.
pub async fn alternating(
    blocks: usize,
    block: usize,
    mut ours: impl AsyncFnMut(),
    mut other: impl AsyncFnMut(),
) -> (f64, f64) {
    let (mut our_us, mut other_us) = (Vec::new(), Vec::new());
    for _ in 0..blocks {
        for _ in 0..block {
            let start = Instant::now();
            ours().await;
            our_us.push(seconds(start) * 1e6);
        }
        for _ in 0..block {
            let start = Instant::now();
            other().await;
            other_us.push(seconds(start) * 1e6);
        }
    }
    (median(our_us), median(other_us))
}
