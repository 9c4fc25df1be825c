// The tests' side of terraform: `terraform`, which TestMain installs once, and a workspace for each test. A test writes a
// configuration, runs terraform on it against the server `millrace`, and looks at plans and state.

package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// version is the one under which the mirror has the provider.
const version = "0.1.0"

const preamble = `
terraform {
  required_providers {
    millrace = {
      source  = "millrace/millrace"
      version = "` + version + `"
    }
  }
}
`

// installation is the real terraform and a mirror with the provider, from which `terraform init` ran once: workspaces share
// its data folder and copy its lock file.
type installation struct {
	program string
	folder  string
	lock    []byte
	env     []string
}

func (i *installation) install(folder string) error {
	program, err := program("PROVIDER")
	if err != nil {
		return err
	}
	if i.program, err = exec.LookPath("terraform"); err != nil {
		return err
	}
	mirror := filepath.Join(folder, "mirror")
	at := filepath.Join(mirror, "registry.terraform.io/millrace/millrace", version, runtime.GOOS+"_"+runtime.GOARCH)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := os.Symlink(program, filepath.Join(at, "terraform-provider-millrace_v"+version)); err != nil {
		return err
	}
	settings := filepath.Join(folder, "terraform.rc")
	text := fmt.Sprintf("disable_checkpoint = true\nprovider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror)
	if err := os.WriteFile(settings, []byte(text), 0o644); err != nil {
		return err
	}
	i.folder = folder
	i.env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+settings, "TF_IN_AUTOMATION=1", "TF_INPUT=0",
		"TF_DATA_DIR="+filepath.Join(folder, "terraform-data"),
		"MILLRACE_ENDPOINT="+millrace.base, "MILLRACE_TOKEN="+millrace.token, "MILLRACE_ORGANISATION="+millrace.organisation)
	first := filepath.Join(folder, "first")
	if err := os.MkdirAll(first, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(first, "main.tf"), []byte(preamble), 0o644); err != nil {
		return err
	}
	if output, code, err := i.run(first, "init", "-no-color"); err != nil || code != 0 {
		return fmt.Errorf("terraform init: %w\n%s", err, output)
	}
	i.lock, err = os.ReadFile(filepath.Join(first, ".terraform.lock.hcl"))
	return err
}

func (i *installation) run(folder string, arguments ...string) (string, int, error) {
	return i.runWith(folder, nil, arguments...)
}

func (i *installation) runWith(folder string, environment []string, arguments ...string) (string, int, error) {
	command := exec.Command(i.program, arguments...)
	command.Dir = folder
	command.Env = append(slices.Clone(i.env), environment...)
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(output), exit.ExitCode(), nil
	}
	return string(output), 0, err
}

// workspace is a folder with one configuration and its state.
type workspace struct {
	t      *testing.T
	folder string
	// environment has variables that differ from the others'.
	environment []string
}

func newWorkspace(t *testing.T) *workspace {
	t.Helper()
	w := &workspace{t: t, folder: t.TempDir()}
	w.write(".terraform.lock.hcl", terraform.lock)
	return w
}

func (w *workspace) write(name string, content []byte) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.folder, name), content, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *workspace) configure(configuration string) {
	w.t.Helper()
	w.write("main.tf", []byte(preamble+configuration))
}

// try runs terraform and returns what it prints and its exit code.
func (w *workspace) try(arguments ...string) (string, int) {
	w.t.Helper()
	output, code, err := terraform.runWith(w.folder, w.environment, append(arguments, "-no-color")...)
	if err != nil {
		w.t.Fatal(err)
	}
	return output, code
}

func (w *workspace) must(arguments ...string) string {
	w.t.Helper()
	output, code := w.try(arguments...)
	if code != 0 {
		w.t.Fatalf("terraform %s: exit code %d\n%s", strings.Join(arguments, " "), code, output)
	}
	return output
}

func (w *workspace) apply() string {
	w.t.Helper()
	return w.must("apply", "-auto-approve")
}

// isEmpty expects that Terraform has nothing to do.
func (w *workspace) isEmpty(when string) {
	w.t.Helper()
	if output, code := w.try("plan", "-detailed-exitcode"); code != 0 {
		w.t.Fatalf("the plan %s is not empty (exit code %d):\n%s", when, code, output)
	}
}

// differs expects that Terraform has something to do, and that the plan names it.
func (w *workspace) differs(when string, named ...string) {
	w.t.Helper()
	output, code := w.try("plan", "-detailed-exitcode")
	if code != 2 {
		w.t.Fatalf("the plan %s: exit code %d instead of 2\n%s", when, code, output)
	}
	for _, name := range named {
		if !strings.Contains(output, name) {
			w.t.Fatalf("the plan %s does not name %q:\n%s", when, name, output)
		}
	}
}

// attributes is what the state says of a resource.
func (w *workspace) attributes(address string) map[string]any {
	w.t.Helper()
	command := exec.Command(terraform.program, "show", "-json")
	command.Dir = w.folder
	command.Env = terraform.env
	output, err := command.Output()
	if err != nil {
		w.t.Fatal(err)
	}
	var state struct {
		Values struct {
			RootModule struct {
				Resources []struct {
					Address string
					Values  map[string]any
				}
			} `json:"root_module"`
		}
	}
	if err := json.Unmarshal(output, &state); err != nil {
		w.t.Fatal(err)
	}
	for _, it := range state.Values.RootModule.Resources {
		if it.Address == address {
			return it.Values
		}
	}
	w.t.Fatalf("the state has no %s", address)
	return nil
}
