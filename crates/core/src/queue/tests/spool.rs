//! A full spool against the sentence that operators read: the oldest of the lowest class go.

use super::*;

const SPOOL: Bounds = Bounds { messages_max: usize::MAX, bytes_max: 4000, class_bytes: usize::MAX, is_spool: true };
/// None of which only the newest waits, one of each other policy: `high`, `normal`, `low` and `a`.
const CLASSES: [u8; 4] = [0, 1, 2, 4];

/// Publishers of one class each; with paging, what is beyond the window is held back and settles now and then.
#[derive(Clone, Debug)]
enum Step {
    Offer(usize, usize),
    Pop,
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..8_usize, 0..400_usize).prop_map(|(publisher, payload)| Step::Offer(publisher, payload)),
        1 => Just(Step::Pop),
        2 => Just(Step::Settle),
    ]
}

fn sent_by(publisher: usize, payload: usize) -> Sent {
    let (class, colour) = (CLASSES[publisher % CLASSES.len()], Colour::Entitled);
    Sent { publisher: publisher as u64, class, is_by_topic: false, topic: 0, payload, rate: 0, colour }
}

proptest! {
    #[test]
    fn the_oldest_of_the_lowest_class_go(steps in prop::collection::vec(step(), 1..120), window in 0..3_usize) {
        let priority = priority_with(PriorityMode::Practical, |_| false);
        let weight = |class: u8| priority.classes.weight(ClassId::from_bits(class));
        let paging = Paging { window: [usize::MAX, 1500, 0][window], turn: 1 };
        let (mut queue, mut waiting) = (Queue::default(), Vec::<Known>::new());
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Pop => {
                    if let Some(gone) = queue.pop() {
                        waiting.retain(|known| known.number != number_of(&gone));
                    }
                }
                Step::Settle => queue.settle(|_| true, &priority, paging.window),
                Step::Offer(publisher, payload) => {
                    let sent = sent_by(*publisher, *payload);
                    let (place, qos) = (number as u64 + 1, QoS::AtLeastOnce);
                    let message = Queued { qos, place, ..queued(&sent, number) };
                    waiting.push(Known { number, sent, size: message.message.size() });
                    let mut lost = Vec::new();
                    queue.offer(message, &priority, SPOOL, paging, |item, gone| lost.push((number_of(&here(item)), gone)));
                    for (gone, why) in lost {
                        let lowest = waiting.iter().map(|known| weight(known.sent.class)).min();
                        let place = waiting.iter().position(|known| known.number == gone).unwrap();
                        let victim = waiting.remove(place);
                        prop_assert_eq!(Some(weight(victim.sent.class)), lowest, "{:?}", why);
                        let of_class = |known: &&Known| known.sent.class == victim.sent.class;
                        let is_oldest = waiting.iter().filter(of_class).all(|known| known.number > gone);
                        let is_newest = victim.number == number;
                        prop_assert!(is_newest || is_oldest);
                        let on_full = priority.on_full(ClassId::from_bits(victim.sent.class));
                        prop_assert!(is_oldest || on_full == OnFull::DropNewest, "a newcomer goes for its own class only");
                    }
                }
            }
            prop_assert_eq!(queue.len(), waiting.len());
            prop_assert!(queue.bytes() <= SPOOL.bytes_max);
        }
    }
}

/// However many have to go for one newcomer, the flows are looked through once.
#[test]
fn one_look_serves_all_that_have_to_go() {
    let priority = priority_with(PriorityMode::Practical, |_| false);
    let mut queue = Queue::default();
    let roomy = Bounds { bytes_max: usize::MAX, ..SPOOL };
    let offer = |queue: &mut Queue, publisher: usize, number: usize| {
        let message =
            Queued { qos: QoS::AtLeastOnce, place: number as u64 + 1, ..queued(&sent_by(publisher, 10), number) };
        queue.offer(message, &priority, roomy, NO_PAGING, |_, _| panic!("there is room"));
    };
    // Two publishers of the lowest class, whose messages alternate.
    let (one, other, late) = (2, 6, 10);
    for number in 0..6 {
        offer(&mut queue, if number % 2 == 0 { one } else { other }, number);
    }
    let mut look = None;
    let evict = |queue: &mut Queue, look: &mut Option<crate::queue::spool::SpoolLook>| {
        queue.evict_lowest(&priority, look).map(|item| number_of(&here(item)))
    };
    assert_eq!(evict(&mut queue, &mut look), Some(0));
    // It would be the next, had somebody looked again: its place says that it is older.
    let message = Queued { qos: QoS::AtLeastOnce, place: 1, ..queued(&sent_by(late, 10), 9) };
    queue.offer(message, &priority, roomy, NO_PAGING, |_, _| panic!("there is room"));
    for number in 1..6 {
        assert_eq!(evict(&mut queue, &mut look), Some(number));
    }
    // Only when all of them are gone.
    assert_eq!((evict(&mut queue, &mut look), evict(&mut queue, &mut look)), (Some(9), None));
}
