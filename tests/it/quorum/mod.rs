//! The quorum: the scripts of a member, and the store on real servers.

mod agreement;
mod grants;
mod member;
mod scripts;
mod settings;
