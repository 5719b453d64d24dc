//! A shared subscription whose members leave and come back, on any number of shards. A message that is on its way to a shard
//! where the last member has just left goes on to another; wherever it is when the process ends, somebody has it after.

use tidegate_wire_mqtt::{Limits, PacketId, Properties, QoS, TopicFilter, TopicFilters, Unsubscribe, Version};

use crate::client::{Client, Habit};
use crate::run;
use crate::world::World;

const SEEDS: u64 = 500;
/// So many that they are not all sent before the members come to rest.
const MESSAGES: u32 = 150;
const FILTER: &str = "$share/group/t/#";

impl Client {
    pub(crate) fn is_member(&self) -> bool {
        self.filter.as_ref().is_some_and(|(filter, _)| filter == FILTER)
    }

    /// Leaves the group, or joins it.
    pub(crate) fn change_mind(&mut self) {
        if !std::mem::take(&mut self.is_subscribed) {
            return self.subscribe();
        }
        let filters = [TopicFilter::parse(FILTER, &Limits::default()).unwrap()];
        let filters = TopicFilters::new(&filters);
        self.say(&Unsubscribe { packet_id: PacketId::MIN, properties: Properties::EMPTY, filters });
    }
}

/// One stays, so that there is somebody who has to get what was acknowledged.
fn members() -> Vec<Client> {
    let member = |id, version| Client::new(id, version, None, Some((FILTER, QoS::ExactlyOnce)));
    let mut clients = vec![
        Client::new("alice", Version::V5, Some("t/alice"), None),
        Client::new("bob", Version::V311, Some("t/bob"), None),
        member("stays", Version::V5),
    ];
    for id in ["one", "two"] {
        let mut fickle = member(id, Version::V311);
        fickle.habit = Habit::Fickle;
        clients.push(fickle);
    }
    for client in &mut clients {
        client.messages_max = MESSAGES;
    }
    clients
}

fn check(world: &mut World) {
    world.check();
    let (senders, rest): (Vec<&Client>, _) = world.clients.iter().partition(|client| client.publishes.is_some());
    let members: Vec<&Client> = rest.into_iter().filter(|client| client.is_member()).collect();
    for sender in senders {
        for (&number, &qos) in &sender.sent {
            let times = members
                .iter()
                .map(|member| member.got.iter().filter(|(from, other)| *from == sender.id && *other == number).count());
            let times: Vec<usize> = times.collect();
            let who = format!("{} to {times:?}", sender.id);
            let is_there = times.iter().sum::<usize>() > 0;
            assert!(is_there || !sender.acknowledged.contains(&number), "{who}: {number} was acknowledged and is lost");
            assert!(qos != QoS::ExactlyOnce || times.iter().sum::<usize>() <= 1, "{who}: {number}");
        }
    }
}

#[test]
fn f109_what_a_group_was_promised_is_there_though_its_members_leave() {
    run("f109", SEEDS, members, check);
}
