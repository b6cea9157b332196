//go:build tools

package main

import _ "go.etcd.io/etcd/server/v3"
