// The API server of Kubernetes as a program of its own, for the tests: no registry of packages has one. The module pins etcd,
// too, so that both are built by one command.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
