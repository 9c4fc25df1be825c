// Package mqtt is the k6 module k6/x/mqtt: MQTT clients for load tests, and flows that check what
// the broker delivered. Scripts see it as mqtt.d.ts declares it.
//
// Two maintained libraries speak the protocol, one for each version; this package gives them one
// interface, transports, k6's metrics and k6's event loop. It knows nothing of Millrace.
package mqtt

import (
	"sync/atomic"

	"github.com/grafana/sobek"
	"go.k6.io/k6/js/modules"
)

func init() { modules.Register("k6/x/mqtt", New()) }

// Root is shared by all VUs of the process, and so are the flows that it keeps.
type Root struct {
	flows *flows
	// Open connections of all VUs, for a gauge.
	open atomic.Int64
}

// New makes a module with no flows.
func New() *Root { return &Root{flows: newFlows()} }

// instance is the module as one VU sees it.
type instance struct {
	vu      modules.VU
	flows   *flows
	open    *atomic.Int64
	metrics *metricSet
	// Records metrics of the current iteration. Only the event loop uses it.
	recorder *recorder
}

// NewModuleInstance is called by k6 once for each VU that imports the module.
func (r *Root) NewModuleInstance(vu modules.VU) modules.Instance {
	return &instance{vu: vu, flows: r.flows, open: &r.open, metrics: registerMetrics(vu.InitEnv().Registry)}
}

// Exports names what scripts import.
func (i *instance) Exports() modules.Exports {
	return modules.Exports{Named: map[string]any{"Client": i.newClient, "Flow": i.newFlow}}
}

// current returns the recorder of this iteration.
func (i *instance) current() *recorder {
	ctx := i.vu.Context()
	if i.recorder == nil || i.recorder.ctx != ctx {
		i.recorder = newRecorder(ctx, i.vu.State(), i.metrics, i.open)
	}
	return i.recorder
}

func (i *instance) newClient(call sobek.ConstructorCall) *sobek.Object {
	rt := i.vu.Runtime()
	settings, err := parseSettings(rt, call.Argument(0))
	if err != nil {
		i.throw(err)
	}
	return rt.ToValue(&Client{module: i, settings: settings}).ToObject(rt)
}

func (i *instance) newFlow(call sobek.ConstructorCall) *sobek.Object {
	rt := i.vu.Runtime()
	name, err := text(call.Argument(0), "the name of a flow")
	if err != nil {
		i.throw(err)
	}
	return rt.ToValue(&Flow{module: i, flow: i.flows.named(name)}).ToObject(rt)
}
