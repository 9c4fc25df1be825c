// k6 with the module k6/x/mqtt built in.
package main

import (
	"go.k6.io/k6/cmd"

	_ "millrace/loadtests/k6/mqtt"
)

func main() { cmd.Execute() }
