//! Ports for servers, of which each is given once on this machine.
//!
//! A port that the system has just called free may be taken before the server listens on it: by another test program, or by
//! an outgoing connection. The ports here are below those of outgoing connections, and a test program has whole blocks of
//! them to itself until it ends.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

#[cfg(test)]
use crate::wait::until_so;

/// How far the port of a cluster's bus is above that of its node.
const BUS: u16 = 10_000;
/// What is divided into blocks. With the ports of the buses above them they end below 32,768, where those of outgoing
/// connections begin.
const PORTS: Range<u16> = 10_100..20_100;
/// More ports than one test needs, and blocks for a hundred test programs.
const BLOCK: u16 = 100;

/// The ports from which this program gives.
static BLOCKS: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// Ports that no other test program gives.
struct Block {
    /// Listens on the first of them, which shows others that the block is taken.
    _first: TcpListener,
    left: Range<u16>,
}

impl Block {
    /// Takes a block that no test program has.
    fn take() -> Self {
        let mut firsts: Vec<_> = PORTS.step_by(BLOCK.into()).collect();
        fastrand::shuffle(&mut firsts);
        let block = firsts.into_iter().find_map(|first| {
            Some(Self {
                _first: listener(first)?,
                left: first + 1..first + BLOCK,
            })
        });
        block.expect("not every block of ports is taken")
    }

    fn next(&mut self) -> Option<u16> {
        let is_free = |port| listener(port).is_some();
        self.left
            .find(|port| is_free(*port) && is_free(*port + BUS))
    }
}

fn listener(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

/// Returns a port that no other server has, nor the port 10,000 above it, which is that of a cluster's bus.
pub fn free_port() -> u16 {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(port) = blocks.last_mut().and_then(Block::next) {
            return port;
        }
        blocks.push(Block::take());
    }
}

#[tokio::test]
async fn a_port_is_given_once_and_is_below_those_of_outgoing_connections() {
    let mut ports: Vec<_> = (0..250).map(|_| free_port()).collect();
    let is_free = |port: u16| listener(port).is_some() && listener(port + BUS).is_some();
    for port in &ports {
        // A process that another test is starting has a copy of our listeners for a moment.
        until_so("the port to be free", async || is_free(*port)).await;
    }
    assert!(ports.iter().all(|port| port + BUS < 32_768), "{ports:?}");
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 250);
}

#[test]
fn a_block_of_ports_that_one_program_has_is_not_given_to_another() {
    let one = Block::take();
    let others: Vec<_> = (0..10).map(|_| Block::take()).collect();
    let is_other = |other: &Block| other.left.start != one.left.start;
    assert!(others.iter().all(is_other));
}
