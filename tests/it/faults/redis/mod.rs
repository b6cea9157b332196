//! The store on Redis: many clients on a bad network, and a server that forgets thousands of leases.

mod lossy_network;
mod restart;
