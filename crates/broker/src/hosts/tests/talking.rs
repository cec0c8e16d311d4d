use super::{Event, LONG, Pair, echo, host, pair};
use crate::hosts::{LinkError, MAX_FRAME_BYTES, MAX_QUESTIONS, Peer};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

fn seed() -> u64 {
    let seed = std::env::var("STRIPEWISE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("STRIPEWISE_SEED={seed}");
    seed
}

/// What a question is to be answered with: its first 8 bytes are the answer's length.
fn model(question: &[u8]) -> Vec<u8> {
    let length = question.get(..8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()) as usize);
    let sum = question.iter().fold(17_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
    (0..length).map(|index| sum.wrapping_add((index % 251) as u8)).collect()
}

fn question(random: &mut StdRng) -> Vec<u8> {
    let length = |random: &mut StdRng| match random.random_range(0..20) {
        0..12 => random.random_range(0..200),
        12..19 => random.random_range(0..100_000),
        _ => random.random_range(0..3_000_000),
    };
    let mut question = vec![0; length(random)];
    random.fill_bytes(&mut question);
    if question.len() >= 8 {
        let answer = length(random) as u64;
        question[..8].copy_from_slice(&answer.to_le_bytes());
    }
    question
}

#[test]
fn both_sides_ask_at_once_and_get_the_answers_to_their_questions() {
    let seed = seed();
    let pair = pair(host(|_, question| model(&question)), host(|_, question| model(&question)));
    std::thread::scope(|scope| {
        for asker in 0..12 {
            let peer = if asker % 2 == 0 { &pair.a } else { &pair.b };
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed.wrapping_add(asker));
                for _ in 0..40 {
                    let question = question(&mut random);
                    assert!(peer.ask(&question, LONG).unwrap() == model(&question), "{} bytes", question.len());
                }
            });
        }
    });
    assert!(pair.a.is_open() && pair.b.is_open());
}

#[test]
fn an_answer_that_is_late_is_dropped_and_the_next_is_the_right_one() {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let slow = host(move |_, question| {
        if question == b"slow" {
            released.lock().unwrap().recv().unwrap();
        }
        question
    });
    let pair = pair(slow, echo());
    let late = pair.a.ask(b"slow", Duration::from_millis(20)).unwrap_err();
    assert!(matches!(late, LinkError::Late { .. }) && !late.has_ended(), "{late}");
    assert_eq!(pair.a.ask(b"quick", LONG).unwrap(), b"quick");
    release.send(()).unwrap();
    drop(pair.a.begin(b"nobody waits", LONG).unwrap().unwrap());
    for number in 0..100_u8 {
        assert_eq!(pair.a.ask(&[number], LONG).unwrap(), [number]);
    }
}

/// The first one's host answers once as many questions as are allowed have come, and the barrier was met.
fn waiting_pair() -> (Pair, Arc<Barrier>) {
    let together = Arc::new(Barrier::new(MAX_QUESTIONS + 1));
    let waiting = Arc::clone(&together);
    let answer = move |_: &Arc<Peer>, question| {
        waiting.wait();
        question
    };
    (pair(host(answer), echo()), together)
}

#[test]
fn as_many_questions_as_are_allowed_are_heard_at_once_and_notices_pass_them() {
    let (pair, together) = waiting_pair();
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..MAX_QUESTIONS)
            .map(|number| {
                let peer = &pair.a;
                scope.spawn(move || peer.ask(&number.to_le_bytes(), LONG).unwrap() == number.to_le_bytes())
            })
            .collect();
        pair.a.notify(b"passes").unwrap();
        let Event::Notice(notice) = pair.of_a.recv_timeout(LONG).unwrap() else { panic!("no notice") };
        assert_eq!(notice, b"passes");
        together.wait();
        assert!(askers.into_iter().all(|asker| asker.join().unwrap()));
    });
}

#[test]
fn questions_are_begun_together_up_to_where_asking_would_wait() {
    let (pair, together) = waiting_pair();
    let begin = |number: usize| pair.a.begin(&number.to_le_bytes(), LONG);
    let asked: Vec<_> = (0..MAX_QUESTIONS).map(|number| begin(number).unwrap().unwrap()).collect();
    assert!(begin(MAX_QUESTIONS).is_none());
    together.wait();
    for (number, asked) in asked.into_iter().enumerate().rev() {
        assert_eq!(asked.wait().1.unwrap(), number.to_le_bytes());
    }
}

#[test]
fn more_askers_than_questions_are_allowed_wait_for_each_other() {
    let (heard, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, highest) = (Arc::clone(&heard), Arc::clone(&most));
    let pair = pair(
        host(move |_, question| {
            highest.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::yield_now();
            now.fetch_sub(1, Ordering::SeqCst);
            question
        }),
        echo(),
    );
    std::thread::scope(|scope| {
        for asker in 0..2 * MAX_QUESTIONS {
            let peer = &pair.a;
            scope.spawn(move || {
                for round in 0..5_usize {
                    let question = (asker * 100 + round).to_le_bytes();
                    assert_eq!(peer.ask(&question, LONG).unwrap(), question);
                }
            });
        }
    });
    assert_eq!(heard.load(Ordering::SeqCst), 0);
    assert!(most.load(Ordering::SeqCst) <= MAX_QUESTIONS);
}

#[test]
fn notices_are_taken_in_order_and_before_any_later_question() {
    let taken = Arc::new(Mutex::new(Vec::new()));
    struct Counting(Arc<Mutex<Vec<u32>>>);
    impl crate::hosts::Hears for Counting {
        fn hear(&self, _: &Arc<Peer>, _: Vec<u8>) -> Vec<u8> {
            self.0.lock().unwrap().len().to_le_bytes().to_vec()
        }
        fn notified(&self, _: &Arc<Peer>, notice: Vec<u8>) {
            self.0.lock().unwrap().push(u32::from_le_bytes(notice[..4].try_into().unwrap()));
        }
        fn met(&self, _: &Arc<Peer>) -> Result<(), String> {
            Ok(())
        }
        fn left(&self, _: &Arc<Peer>, _: &LinkError) {}
    }
    let key = super::key();
    let hears = Arc::new(Counting(Arc::clone(&taken)));
    let listener = crate::hosts::Listener::start(super::loopback(), &key, super::introduction("a"), hears).unwrap();
    let peer = crate::hosts::connect(listener.address(), &key, &super::introduction("b"), echo().0, LONG).unwrap();
    let mut random = StdRng::seed_from_u64(seed());
    let mut sent = 0_u32;
    for _ in 0..200 {
        for _ in 0..random.random_range(0..60) {
            let mut notice = vec![0; 4 + random.random_range(0..3000)];
            notice[..4].copy_from_slice(&sent.to_le_bytes());
            peer.notify(&notice).unwrap();
            sent += 1;
        }
        // All of them, since nobody else sends any.
        assert_eq!(peer.ask(b"how many", LONG).unwrap(), (sent as usize).to_le_bytes());
    }
    assert_eq!(*taken.lock().unwrap(), (0..sent).collect::<Vec<_>>());
}

#[test]
fn a_question_may_be_asked_back_while_one_is_heard() {
    // Each answers a number above 0 by asking the other for one less.
    fn countdown(from: &Arc<Peer>, question: Vec<u8>) -> Vec<u8> {
        match question[0] {
            0 => vec![0],
            left => {
                let mut answer = from.ask(&[left - 1], LONG).unwrap();
                answer.push(left);
                answer
            }
        }
    }
    let pair = pair(host(countdown), host(countdown));
    assert_eq!(pair.a.ask(&[60], LONG).unwrap(), (0..=60).collect::<Vec<u8>>());
}

#[test]
fn the_longest_messages_go_through_and_longer_ones_are_refused_here() {
    let pair = pair(
        host(|_, question| match question.len() {
            1 => vec![0; MAX_FRAME_BYTES + 1],
            _ => question,
        }),
        echo(),
    );
    let mut longest = vec![7; MAX_FRAME_BYTES];
    longest[MAX_FRAME_BYTES / 2] = 9;
    assert!(pair.a.ask(&longest, LONG).unwrap() == longest);
    longest.push(1);
    let too_long = pair.a.ask(&longest, LONG).unwrap_err();
    assert!(matches!(too_long, LinkError::TooLong { .. }), "{too_long}");
    assert!(matches!(pair.a.notify(&longest), Err(LinkError::TooLong { .. })));
    let failed = pair.a.ask(b"1", LONG).unwrap_err();
    assert!(matches!(&failed, LinkError::Failed { what, .. } if what.contains("longer than")), "{failed}");
    assert_eq!(pair.a.ask(b"on", LONG).unwrap(), b"on");
}

#[test]
fn a_panic_while_a_question_is_heard_fails_that_question_alone() {
    let pair = pair(host(|_, question| if question == b"panic" { panic!("as asked") } else { question }), echo());
    let failed = pair.a.ask(b"panic", LONG).unwrap_err();
    assert!(matches!(failed, LinkError::Failed { .. }), "{failed}");
    assert_eq!(pair.a.ask(b"on", LONG).unwrap(), b"on");
}

#[test]
fn what_is_asked_or_sent_before_the_link_is_accepted_goes_out_afterwards() {
    struct Eager(std::sync::mpsc::Sender<Vec<u8>>);
    impl crate::hosts::Hears for Eager {
        fn hear(&self, _: &Arc<Peer>, question: Vec<u8>) -> Vec<u8> {
            question
        }
        fn notified(&self, _: &Arc<Peer>, _: Vec<u8>) {}
        fn met(&self, peer: &Arc<Peer>) -> Result<(), String> {
            peer.notify(b"welcome").unwrap();
            let mut queued = 1;
            while peer.notify(b"again").is_ok() {
                queued += 1;
            }
            assert!((100..10_000).contains(&queued));
            let (peer, answers) = (Arc::clone(peer), self.0.clone());
            std::thread::spawn(move || answers.send(peer.ask(b"who", LONG).unwrap()).unwrap());
            Ok(())
        }
        fn left(&self, _: &Arc<Peer>, _: &LinkError) {}
    }
    let key = super::key();
    let (answers, answered) = channel();
    let eager = Arc::new(Eager(answers));
    let listener = crate::hosts::Listener::start(super::loopback(), &key, super::introduction("a"), eager).unwrap();
    let (b, of_b) = host(|_, _| b"b".to_vec());
    let _peer = crate::hosts::connect(listener.address(), &key, &super::introduction("b"), b, LONG).unwrap();
    super::next_met(&of_b);
    let Event::Notice(notice) = of_b.recv_timeout(LONG).unwrap() else { panic!("no notice") };
    assert_eq!(notice, b"welcome");
    assert_eq!(answered.recv_timeout(LONG).unwrap(), b"b");
}
