//! Small files that grow.

use crate::world::{Dice, World, read, uniform, write};
use std::path::PathBuf;
use std::sync::Barrier;

const STRIPE: u64 = 1000;

#[test]
fn a_file_that_grows_under_its_writers_keeps_every_byte() {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let world = World::new(3);
    let _broker = world.broker();
    let client = world.client();
    for _ in 0..20 {
        let stripes = [(0, STRIPE as u32), (1, STRIPE as u32), (2, STRIPE as u32)];
        let (_stub, file) = world.create_unnamed(&client, uniform(16384, &stripes));
        write(&file, 0, b"begun");
        let directory = file.id().to_string();
        let is_own = |path: &PathBuf| path.parent().is_some_and(|parent| parent.ends_with(&directory));
        assert_eq!(world.objects().into_iter().filter(is_own).count(), 1);
        // Of each writer every fourth byte: within the first stripe, across its end, and beyond.
        let (from, beyond) = (dice.roll(STRIPE), STRIPE + dice.roll(8 * STRIPE));
        let barrier = Barrier::new(4);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (file, barrier) = (&file, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for at in (from..beyond).filter(|at| at % 4 == writer) {
                        assert_eq!(write(file, at, &[at as u8 | 1]), 1);
                    }
                });
            }
        });
        let found = read(&file, from, (beyond - from) as usize);
        assert!((from..beyond).zip(found).all(|(at, byte)| byte == at as u8 | 1), "seed {seed}");
        file.sync(false).unwrap();
        file.truncate(0).unwrap();
        write(&file, 3, b"x");
        assert_eq!(read(&file, 0, 4), b"\0\0\0x");
        assert_eq!(world.objects().into_iter().filter(is_own).count(), 1);
    }
}

/// A reader may have looked at the region before it grew, and at the object after.
#[test]
fn beyond_the_first_stripe_of_a_narrow_region_there_are_zeros_whatever_its_object_holds() {
    let world = World::new(2);
    let _broker = world.broker();
    let client = world.client();
    let stripes = [(0, STRIPE as u32), (1, STRIPE as u32)];
    let (_stub, file) = world.create_unnamed(&client, uniform(16384, &stripes));
    write(&file, 0, b"begun");
    file.truncate(3 * STRIPE).unwrap();
    let [object] = &world.objects()[..] else { panic!("one object") };
    // The first stripe, and the third of the whole layout.
    std::fs::write(object, [7; 2 * STRIPE as usize]).unwrap();
    let found = read(&file, STRIPE - 10, 4 * STRIPE as usize);
    assert_eq!(found.len() as u64, 2 * STRIPE + 10);
    assert!(found[..10] == [7; 10] && found[10..].iter().all(|byte| *byte == 0));
    assert!(read(&file, STRIPE, 10) == [0; 10]);
}
