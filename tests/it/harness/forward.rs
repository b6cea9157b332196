//! For a store that wraps another one: it spells out only what it does in its own way.

/// The named methods of `Store`, each handed on to the store in this field: `forward!(memory: inspect list)`.
macro_rules! forward {
    ($inner:ident: $($method:ident)+) => {
        $(forward!(@$method $inner);)+
    };
    (@clock $inner:ident) => {
        fn clock(&self) -> std::sync::Arc<dyn leasehold::clock::Clock> {
            self.$inner.clock()
        }
    };
    (@location $inner:ident) => {
        fn location(&self) -> String {
            self.$inner.location()
        }
    };
    (@acquire $inner:ident) => {
        fn acquire<'a>(
            &'a self,
            claim: &'a leasehold::store::Claim,
            ask: leasehold::store::Ask,
            limit: std::time::Duration,
        ) -> leasehold::BoxFuture<'a, Result<leasehold::store::Answer, leasehold::store::Failed>>
        {
            self.$inner.acquire(claim, ask, limit)
        }
    };
    (@renew $inner:ident) => {
        fn renew<'a>(
            &'a self,
            batch: &'a [leasehold::store::Renewal],
            limit: std::time::Duration,
        ) -> leasehold::BoxFuture<'a, leasehold::store::Renewed> {
            self.$inner.renew(batch, limit)
        }
    };
    (@release $inner:ident) => {
        fn release<'a>(
            &'a self,
            name: &'a leasehold::Name,
            holder: leasehold::Holder,
            keep_for: Option<std::time::Duration>,
            limit: std::time::Duration,
        ) -> leasehold::BoxFuture<'a, Result<leasehold::store::Release, leasehold::Error>> {
            self.$inner.release(name, holder, keep_for, limit)
        }
    };
    (@inspect $inner:ident) => {
        fn inspect<'a>(
            &'a self,
            name: &'a leasehold::Name,
            limit: std::time::Duration,
        ) -> leasehold::BoxFuture<'a, Result<Option<leasehold::store::Held>, leasehold::Error>> {
            self.$inner.inspect(name, limit)
        }
    };
    (@list $inner:ident) => {
        fn list<'a>(
            &'a self,
            prefix: &'a str,
            limit: std::time::Duration,
        ) -> leasehold::BoxFuture<'a, Result<Vec<leasehold::store::Held>, leasehold::Error>> {
            self.$inner.list(prefix, limit)
        }
    };
    (@evict $inner:ident) => {
        fn evict<'a>(
            &'a self,
            name: &'a leasehold::Name,
            how: leasehold::store::Eviction,
            limit: std::time::Duration,
        ) -> leasehold::BoxFuture<'a, Result<bool, leasehold::Error>> {
            self.$inner.evict(name, how, limit)
        }
    };
    (@leave $inner:ident) => {
        fn leave<'a>(
            &'a self,
            name: &'a leasehold::Name,
            client: leasehold::ClientId,
            limit: std::time::Duration,
        ) -> leasehold::BoxFuture<'a, Result<(), leasehold::Error>> {
            self.$inner.leave(name, client, limit)
        }
    };
    (@notices $inner:ident) => {
        fn notices(
            &self,
        ) -> leasehold::BoxFuture<
            '_,
            Result<Option<Box<dyn leasehold::store::Notices>>, leasehold::Error>,
        > {
            self.$inner.notices()
        }
    };
    (@facts $inner:ident) => {
        fn facts(&self) -> leasehold::store::Facts {
            self.$inner.facts()
        }
    };
    (@shard $inner:ident) => {
        fn shard(&self, name: &leasehold::Name) -> u32 {
            self.$inner.shard(name)
        }
    };
    (@members $inner:ident) => {
        fn members(
            &self,
            limit: std::time::Duration,
        ) -> leasehold::BoxFuture<'_, Result<Vec<leasehold::store::Member>, leasehold::Error>> {
            self.$inner.members(limit)
        }
    };
    (@hazards $inner:ident) => {
        fn hazards(
            &self,
            limit: std::time::Duration,
        ) -> leasehold::BoxFuture<'_, Result<Vec<leasehold::store::Hazard>, leasehold::Error>> {
            self.$inner.hazards(limit)
        }
    };
    (@close $inner:ident) => {
        fn close(&self) -> leasehold::BoxFuture<'_, ()> {
            self.$inner.close()
        }
    };
}

pub(crate) use forward;
