//! Who is next: waiting for a name, and leaving nothing behind.

mod cancel_safety;
mod child;
mod fair;
mod floors;
mod leaving;
mod on_redis;
mod on_sqlite;
mod owner;
mod plain;
mod scope;
mod within_one_client;
