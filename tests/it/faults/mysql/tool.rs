//! The tool on it.

use crate::harness::mysql_server::MysqlServer;
use crate::tool::{any_store, on_mysql};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_makes_the_table_and_without_it_a_run_is_78_and_names_it() {
    let server = MysqlServer::start().await;
    let database = server.database().await;
    server
        .sql(&[
            "CREATE USER jobs@127.0.0.1 IDENTIFIED BY 's3cret'",
            &format!("GRANT ALL ON {database}.* TO jobs@127.0.0.1"),
        ])
        .await;
    on_mysql::init_makes_the_table_and_no_run_shows_the_password(
        &server.url_as("jobs:s3cret", &database),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_printed_sql_makes_the_table() {
    let server = MysqlServer::shared().await;
    let database = server.database().await;
    let url = server.url_as("root", &database);
    let printed = on_mysql::printed_sql(&url);
    let printed = printed.trim().trim_end_matches(';');
    server.session(&database).await.sql(&[printed]).await;
    any_store::one_of_two_runs_has_the_name_and_an_evicted_job_ends_with_79(&url);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_see_and_evict_what_is_held() {
    let server = MysqlServer::shared().await;
    let urls = [server.url().await, server.url().await];
    any_store::operators_see_and_evict_what_is_held(urls.each_ref().map(String::as_str));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_tries_the_store_and_tells_what_is_weak() {
    let server = MysqlServer::start_with(&["--innodb-flush-log-at-trx-commit=2"]).await;
    let url = server.url().await;
    any_store::the_doctor_says(&url, &["ok       trial: ", "mysql-no-flush", "MariaDB 1"]);
}
