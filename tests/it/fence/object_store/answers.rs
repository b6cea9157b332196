//! Answers of servers that are not set up right.

use leasehold::ErrorKind;
use leasehold::fence::object_store::Fence;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::fence::pass;
use crate::harness::bucket_server::bucket;

/// The URL of a bucket on a server that gives these answers to the requests of each method.
async fn answering(put: &'static str, get: &'static str) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            // The requests are small.
            let mut request = vec![0; 16 * 1024];
            let read = client.read(&mut request).await.expect("asked");
            let answer = match request[..read].starts_with(b"PUT") {
                true => put,
                false => get,
            };
            let answer = format!("HTTP/1.1 {answer}");
            client.write_all(answer.as_bytes()).await.expect("answered");
        }
    });
    format!("http://{address}/bucket")
}

const ABSENT: &str = "404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const NO_TAG: &str = "200 OK\r\nconnection: close\r\nlast-modified: Sat, 28 Nov 2026 10:00:00 GMT\r\ncontent-length: 0\r\n\r\n";
const INVALID_NAME: &str = "400 Bad Request\r\nconnection: close\r\ncontent-length: 45\r\n\r\n\
    <Error><Code>InvalidBucketName</Code></Error>";
const REDIRECT: &str = "301 Moved Permanently\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const SLOW: &str = "400 Bad Request\r\nconnection: close\r\ncontent-length: 42\r\n\r\n\
    <Error><Code>RequestTimeout</Code></Error>";

/// None of it gets better with time, so a client that tries again would do so for ever.
#[tokio::test]
async fn a_bucket_without_tags_or_of_a_wrong_name_or_region_is_misconfigured() {
    for (put, get, why) in [
        (NO_TAG, ABSENT, "no version"),
        (ABSENT, NO_TAG, "no version"),
        (INVALID_NAME, ABSENT, "refused the request"),
        (ABSENT, INVALID_NAME, "refused the request"),
        (REDIRECT, REDIRECT, "region"),
    ] {
        let fence = Fence::new(bucket(&answering(put, get).await), "ledger").expect("valid");
        let error = fence.raise(&pass(1, 1)).await.expect_err("no fence");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{put}: {error:?}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn a_request_that_was_too_slow_for_the_server_is_an_outage() {
    let fence = Fence::new(bucket(&answering(SLOW, SLOW).await), "ledger").expect("valid");
    let error = fence.raise(&pass(1, 1)).await.expect_err("not answered");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}
