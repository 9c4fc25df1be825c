// Terraform's provider for tenants of Millrace. Terraform starts the program and talks to it over gRPC.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"millrace/terraform/provider/internal/provider"
)

// version is set by the linker.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "wait for a debugger, and print how Terraform reaches this process")
	flag.Parse()
	options := providerserver.ServeOpts{Address: "registry.terraform.io/millrace/millrace", Debug: *debug}
	if err := providerserver.Serve(context.Background(), provider.New(version), options); err != nil {
		log.Fatal(err)
	}
}
