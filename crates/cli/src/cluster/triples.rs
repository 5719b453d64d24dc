//! The smart space in the demonstration: numbers that become triples at whoever serves, and what of them is there at the end.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tidegate_program::{AdminClient, AdminRequest};

/// A request is small; whoever is dying does not answer.
const PAUSE: Duration = Duration::from_millis(100);
const UPDATE: &str = "application/sparql-update";
const QUERY: &str = "application/sparql-query";

/// What was confirmed, by whichever node.
pub(super) struct Triples {
    doors: Vec<SocketAddr>,
    next: u32,
    confirmed: BTreeSet<u32>,
}

impl Triples {
    /// With the HTTP doors of all nodes: one of them is open.
    pub(super) fn new(doors: Vec<SocketAddr>) -> Self {
        Self { doors, next: 0, confirmed: BTreeSet::new() }
    }

    /// Inserts until so many more are confirmed.
    pub(super) fn insert(&mut self, count: u32, patience: Duration) -> Result<()> {
        for _ in 0..count {
            self.next += 1;
            let number = self.next;
            self.ask("/update", UPDATE, &format!("INSERT DATA {{ <urn:demo> <urn:number> {number} }}"), patience)?;
            self.confirmed.insert(number);
        }
        Ok(())
    }

    /// How many were confirmed, and how many of them are not there any more.
    pub(super) fn sums(&self, patience: Duration) -> Result<(usize, usize)> {
        let found = self.ask("/query", QUERY, "SELECT ?n { <urn:demo> <urn:number> ?n }", patience)?;
        let found: BTreeSet<u32> = found.lines().filter_map(|line| line.trim().parse().ok()).collect();
        Ok((self.confirmed.len(), self.confirmed.difference(&found).count()))
    }

    fn ask(&self, path: &str, kind: &str, text: &str, patience: Duration) -> Result<String> {
        let until = Instant::now() + patience;
        let request = AdminRequest { method: "POST", path, accept: "text/csv, */*;q=0.1", kind, body: text.as_bytes() };
        loop {
            for door in &self.doors {
                let Ok(answer) = AdminClient::at(*door).exchange(&request) else { continue };
                if let Some((200, body)) = answer.parts() {
                    return String::from_utf8(body.to_vec()).context("an answer of the smart space");
                }
            }
            if Instant::now() > until {
                bail!("no node answers for the smart space");
            }
            std::thread::sleep(PAUSE);
        }
    }
}
