//! The wire protocol of ZooKeeper, spoken by hand.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::ZookeeperServer;

/// The little of the protocol that a test needs to make or remove a node by hand.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    count: i32,
}

impl Wire {
    pub fn connect(server: &ZookeeperServer) -> Self {
        let mut stream = server.connect().expect("it listens");
        let mut hello = Vec::new();
        hello.extend(0_i32.to_be_bytes());
        hello.extend(0_i64.to_be_bytes());
        hello.extend(10_000_i32.to_be_bytes());
        hello.extend(0_i64.to_be_bytes());
        hello.extend(16_i32.to_be_bytes());
        hello.extend([0; 16]);
        hello.push(0);
        send(&mut stream, &hello);
        receive(&mut stream);
        Self { stream, count: 0 }
    }

    pub fn create(&mut self, path: &str, data: &[u8]) -> i32 {
        let mut body = text_bytes(path);
        body.extend(i32::try_from(data.len()).unwrap().to_be_bytes());
        body.extend(data);
        body.extend(1_i32.to_be_bytes());
        body.extend(31_i32.to_be_bytes());
        body.extend(text_bytes("world"));
        body.extend(text_bytes("anyone"));
        body.extend(0_i32.to_be_bytes());
        self.request(1, &body)
    }

    pub fn delete(&mut self, path: &str) -> i32 {
        let mut body = text_bytes(path);
        body.extend((-1_i32).to_be_bytes());
        self.request(2, &body)
    }

    pub fn children(&mut self, path: &str) -> Vec<String> {
        let mut body = text_bytes(path);
        body.push(0);
        let answer = self.answer(8, &body);
        let mut rest = &answer[16..];
        let mut number = || {
            let (head, tail) = rest.split_first_chunk::<4>()?;
            rest = tail;
            let length = usize::try_from(i32::from_be_bytes(*head)).ok()?;
            Some(length)
        };
        let Some(count) = number() else {
            return Vec::new();
        };
        let mut children = Vec::new();
        for _ in 0..count {
            let (head, tail) = rest.split_first_chunk::<4>().unwrap();
            let length = usize::try_from(i32::from_be_bytes(*head)).unwrap();
            children.push(String::from_utf8(tail[..length].to_vec()).unwrap());
            rest = &tail[length..];
        }
        children
    }

    /// Removes a node and all below it, as an operator's `deleteall`.
    pub fn delete_all(&mut self, path: &str) {
        for child in self.children(path) {
            self.delete_all(&format!("{path}/{child}"));
        }
        self.delete(path);
    }

    fn request(&mut self, code: i32, body: &[u8]) -> i32 {
        let answer = self.answer(code, body);
        i32::from_be_bytes(answer[12..16].try_into().unwrap())
    }

    fn answer(&mut self, code: i32, body: &[u8]) -> Vec<u8> {
        self.count += 1;
        let mut request = self.count.to_be_bytes().to_vec();
        request.extend(code.to_be_bytes());
        request.extend(body);
        send(&mut self.stream, &request);
        receive(&mut self.stream)
    }
}

fn send(stream: &mut TcpStream, frame: &[u8]) {
    let length = i32::try_from(frame.len()).unwrap().to_be_bytes();
    // In one piece: a second one would wait 40 ms for the first to be acknowledged.
    let whole = [&length, frame].concat();
    stream.write_all(&whole).expect("it listens");
}

fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("an answer");
    let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut frame).expect("an answer");
    frame
}

fn text_bytes(text: &str) -> Vec<u8> {
    let mut bytes = i32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}
