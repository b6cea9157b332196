CREATE TABLE leasehold_record (
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    version BINARY(16) NOT NULL,
    record BLOB NOT NULL,
    written_us BIGINT NOT NULL
) ENGINE = InnoDB;
INSERT INTO leasehold_record VALUES ('held', x'5a9e7c42d0b84c3f9b1e64f20c7d18aa', '{"v":1,"token":1795905788000021,"by":"8daddfbadc6e4aafb80cd80da41cbaae-455499afd434a40b","state":"leased","ttl_ms":600000,"since_us":1795905788000021,"beat":3,"info":{"host":"recorded","pid":9370}}',
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
INSERT INTO leasehold_record VALUES ('evicted', x'0c1b5d9e3f7a42689d3c81e5b4f6a702', '{"v":1,"token":1795905788000022,"by":"8daddfbadc6e4aafb80cd80da41cbaae-455499afd434a40b","state":"evicted","ttl_ms":600000,"since_us":1795905788000021,"beat":3,"info":{"host":"recorded","pid":9370}}',
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
INSERT INTO leasehold_record VALUES ('kept', x'f3c8d1e4a5b64790812e6d3c9f0b7a15', '{"v":1,"token":1795905788000023,"by":"8daddfbadc6e4aafb80cd80da41cbaae-455499afd434a40b","state":"kept","ttl_ms":600000,"since_us":1795905788000021,"beat":3,"info":{"host":"recorded","pid":9370}}',
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
INSERT INTO leasehold_record VALUES ('free', x'91d2b3c4e5f64a708b1c2d3e4f5a6b7c', '{"v":1,"token":9007199254740000,"by":"8daddfbadc6e4aafb80cd80da41cbaae-455499afd434a40b","state":"free","since_us":1795905788000021,"beat":3,"info":{"host":"recorded","pid":9370}}',
    1795905788000021);
