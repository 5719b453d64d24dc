//! An open broker without a configuration, for load tests: `open_broker 127.0.0.1:1883 [SHARDS [127.0.0.1:5672]]`, the
//! last for AMQP.

use std::error::Error;
use std::sync::Arc;

use tidegate_broker::Broker;
use tidegate_broker::authenticate::Anonymous;
use tidegate_broker::config::{Config, Listener, ListenerKind};
use tidegate_core::access::Open;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let bind = arguments.next().unwrap_or_else(|| "127.0.0.1:1883".to_owned()).parse()?;
    let shards = arguments.next().unwrap_or_else(|| "0".to_owned()).parse()?;
    let mut listeners = vec![Listener::new(ListenerKind::Mqtt, bind)];
    if let Some(amqp) = arguments.next() {
        listeners.push(Listener::new(ListenerKind::Amqp, amqp.parse()?));
    }
    let broker = Broker::start(Config { listeners, shards, ..Config::default() }, Arc::new(Anonymous), Arc::new(Open))?;
    println!("{:?}", broker.addresses());
    loop {
        std::thread::park();
    }
}
