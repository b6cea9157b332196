//! The fence in Postgres, on a real server, through both drivers.

mod sqlx;
mod tokio_postgres;
