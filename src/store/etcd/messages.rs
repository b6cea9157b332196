//! The messages of etcd's API that the store sends and reads, by its names, without the fields that it leaves alone.

use prost::Message;

/// A request that has one answer.
pub(super) trait Method: Message {
    const PATH: &str;
    type Answer: Message + Default;
}

macro_rules! calls {
    ($($request:ident -> $answer:ident at $path:literal;)*) => {
        $(impl Method for $request {
            const PATH: &str = $path;
            type Answer = $answer;
        })*
    };
}

calls! {
    RangeRequest -> RangeResponse at "/etcdserverpb.KV/Range";
    TxnRequest -> TxnResponse at "/etcdserverpb.KV/Txn";
    LeaseGrantRequest -> LeaseResponse at "/etcdserverpb.Lease/LeaseGrant";
    LeaseRevokeRequest -> Empty at "/etcdserverpb.Lease/LeaseRevoke";
    LeaseKeepAliveRequest -> LeaseResponse at "/etcdserverpb.Lease/LeaseKeepAlive";
    AuthenticateRequest -> AuthenticateResponse at "/etcdserverpb.Auth/Authenticate";
    StatusRequest -> StatusResponse at "/etcdserverpb.Maintenance/Status";
    MemberListRequest -> MemberListResponse at "/etcdserverpb.Cluster/MemberList";
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ResponseHeader {
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
    /// The number of the leader in the order of leaders.
    #[prost(int64, tag = "4")]
    pub(super) raft_term: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

/// Without `range_end` it is one key.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

/// One step of a transaction: one of its fields is there.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RequestOp {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeRequest>,
    #[prost(message, optional, tag = "2")]
    pub(super) put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    pub(super) delete: Option<RangeRequest>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeResponse>,
}

/// That the last change of a key has this revision; 0 if there is no such key.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Compare {
    /// 2: the revision of the last change. The comparison, tag 1, is equality by default.
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(int64, optional, tag = "6")]
    pub(super) mod_revision: Option<i64>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) steps: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) steps: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LeaseResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    /// 0 in the answer to [`LeaseKeepAliveRequest`]: there is no such lease.
    #[prost(int64, tag = "3")]
    pub(super) seconds: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    /// 0: without puts.
    #[prost(int32, repeated, tag = "5")]
    pub(super) filters: Vec<i32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct WatchResponse {
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Empty>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(string, repeated, tag = "8")]
    pub(super) errors: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct MemberListRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) all: Vec<ClusterMember>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ClusterMember {
    #[prost(bool, tag = "5")]
    pub(super) is_learner: bool,
}
