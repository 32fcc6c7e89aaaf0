//! `semel doctor` on a store that now and then does not answer.

use crate::stage::{Fault, Stage};

#[tokio::test(start_paused = true)]
async fn a_write_that_nobody_answers_ends_no_proof() {
    let stage = Stage::new();
    for faults in [[Fault::AppliedUnknown, Fault::None], [Fault::LostUnknown, Fault::None]] {
        stage.store.swaps(&faults.repeat(8));
        let proof = stage.engine(1).prove().await.unwrap();
        assert_eq!((proof.raced, proof.lost), (200, 0), "{faults:?}");
        assert_eq!(proof.clock_fault, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_not_asked_for_ever_and_a_lost_write_is_counted() {
    let stage = Stage::new();
    stage.store.swaps(&[Fault::LostUnknown; 1000]);
    assert!(stage.engine(1).prove().await.is_err());
    // said to be made, and not made
    stage.store.swaps(&[Fault::None, Fault::Forgotten, Fault::None]);
    let proof = stage.engine(1).prove().await.unwrap();
    assert_eq!((proof.raced, proof.lost), (200, 1));
}
