//! The watchdog over real threads and real time, with a store and a user that misbehave.

mod counted;
mod first_contact;
mod forked;
mod hung_connection;
mod hung_store;
mod late;
mod seen;
mod starved;
mod stepped;
mod threads;
mod wakers;

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}
