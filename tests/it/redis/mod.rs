//! The store on Redis under everything that servers, networks and operators do to it.

mod scripts;
mod wire;
