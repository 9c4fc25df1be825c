// etcd, the store of the Kubernetes API server into which the checks install the chart.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
