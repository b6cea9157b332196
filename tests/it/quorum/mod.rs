//! The quorum: the scripts of a member, and the store on real servers.

mod agreement;
mod grants;
mod identity;
mod minority;
#[path = "../../model/protocol/node.rs"]
mod node;
mod outages;
mod raw;
mod rivals;
mod scripts;
mod settings;
mod setup;
