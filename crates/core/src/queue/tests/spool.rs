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
