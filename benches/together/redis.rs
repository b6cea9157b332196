//! On Redis: one script that runs those of the store for each of its claims and releases.

use std::sync::Arc;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Script, Value};
use leasehold::{ClientId, Holder};
use leasehold_benches::Server;

use crate::gather::{Count, Gathered};
use crate::{Way, carried, compare};

const INFO: &str = r#"{"host":"bench","pid":1}"#;
const PAIRS: usize = 100_000;

const SHARED: &str = concat!(
    include_str!("../../src/store/redis/protocol/lease.lua"),
    include_str!("../../src/store/redis/protocol/grant.lua"),
    include_str!("../../src/store/redis/protocol/queue.lua"),
    include_str!("../../src/store/redis/protocol/origin.lua"),
    include_str!("../../src/store/redis/protocol/node.lua"),
);
const ACQUIRE: &str = include_str!("../../src/store/redis/protocol/acquire.lua");
const RELEASE: &str = include_str!("../../src/store/redis/protocol/release.lua");

/// Runs the script of each, with its five keys; the arguments have the number of its own in front.
const LOOP: &str = "
local replies, at = {}, 1
for index = 1, #KEYS, 5 do
  local count = tonumber(ARGV[at])
  local keys = {unpack(KEYS, index, index + 4)}
  local arguments = {unpack(ARGV, at + 1, at + count)}
  replies[#replies + 1] = count == 4 and acquire(keys, arguments) or release(keys, arguments)
  at = at + count + 1
end
return replies
";

fn script_of_many() -> Script {
    let function = |name, body| format!("local function {name}(KEYS, ARGV)\n{body}\nend\n");
    let (acquire, release) = (function("acquire", ACQUIRE), function("release", RELEASE));
    Script::new(&format!("{SHARED}{acquire}{release}{LOOP}"))
}

/// A claim with four arguments, or a release with two.
struct Asked {
    keys: [String; 5],
    arguments: Vec<String>,
}

impl Asked {
    fn claim(name: &str, holder: &str) -> Self {
        let arguments = [holder, "30000", "0", INFO];
        Self::new(name, &arguments)
    }

    fn release(name: &str, holder: &str) -> Self {
        Self::new(name, &[holder, "0"])
    }

    fn new(name: &str, arguments: &[&str]) -> Self {
        let lease = format!("leasehold:{{{name}}}");
        let of = |part: &str| format!("{lease}:{part}");
        Self {
            keys: [
                lease.clone(),
                of("mark"),
                of("queue"),
                of("waiting"),
                "leasehold:node".into(),
            ],
            arguments: arguments.iter().map(|&text| text.into()).collect(),
        }
    }
}

fn drawn(client: ClientId) -> String {
    Holder::draw(client).expect("random bits").to_string()
}

fn assert_says(reply: &Value, word: &str) {
    let is_said = matches!(reply, Value::BulkString(text) if text.starts_with(word.as_bytes()));
    assert!(is_said, "{word}: {reply:?}");
}

/// A request for each claim and each release. The connection sends what several tasks ask at once in one write.
#[derive(Clone)]
struct Single {
    connection: MultiplexedConnection,
    scripts: Arc<[Script; 2]>,
    client: ClientId,
}

impl Single {
    async fn ask(&self, script: usize, asked: Asked) -> Value {
        let mut call = self.scripts[script].key(&asked.keys[..]);
        let call = call.arg(asked.arguments);
        let mut connection = self.connection.clone();
        call.invoke_async(&mut connection).await.expect("it runs")
    }
}

impl Way for Single {
    async fn pair(&self, name: &str) {
        let holder = drawn(self.client);
        let granted = self.ask(0, Asked::claim(name, &holder)).await;
        assert_says(&granted, "granted");
        let released = self.ask(1, Asked::release(name, &holder)).await;
        assert_says(&released, "released");
    }
}

#[derive(Clone)]
struct Together {
    gathered: Gathered<Asked, Value>,
    client: ClientId,
}

impl Together {
    fn start(under_way: usize, connection: MultiplexedConnection, count: &Count) -> Self {
        let script = Arc::new(script_of_many());
        let send = move |asked: Vec<Asked>| {
            let (script, mut connection) = (script.clone(), connection.clone());
            async move {
                let mut call = script.prepare_invoke();
                for Asked { keys, arguments } in asked {
                    call.key(&keys[..]).arg(arguments.len()).arg(arguments);
                }
                let replies: Vec<Value> =
                    call.invoke_async(&mut connection).await.expect("it runs");
                replies
            }
        };
        Self {
            gathered: Gathered::start(under_way, count, send),
            client: ClientId::draw(),
        }
    }
}

impl Way for Together {
    async fn pair(&self, name: &str) {
        let holder = drawn(self.client);
        let granted = self.gathered.ask(Asked::claim(name, &holder)).await;
        assert_says(&granted, "granted");
        let released = self.gathered.ask(Asked::release(name, &holder)).await;
        assert_says(&released, "released");
    }
}

pub(crate) async fn measure() {
    let server = Server::start().await;
    let single = Single {
        connection: server.connect().await,
        scripts: Arc::new([ACQUIRE, RELEASE].map(|body| Script::new(&format!("{SHARED}{body}")))),
        client: ClientId::draw(),
    };
    for (tasks, pairs, under_way) in [(1, PAIRS / 8, 1), (64, PAIRS, 1), (64, PAIRS, 2)] {
        let count = Count::default();
        let together = Together::start(under_way, server.connect().await, &count);
        // Loads the scripts.
        together.pair("warm").await;
        single.pair("warm").await;
        let store = format!("redis_{under_way}_under_way");
        let ways = (together, single.clone());
        compare(&store, ways, (tasks, pairs), server.id()).await;
        carried(&store, tasks, &count);
    }
}
