// The resource millrace_broker: name, limits and suspension of a broker.

package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

type brokerModel struct {
	Name        types.String `tfsdk:"name"`
	DisplayName types.String `tfsdk:"display_name"`
	Suspended   types.Bool   `tfsdk:"suspended"`
	Limits      *limits      `tfsdk:"limits"`
	Endpoints   types.Object `tfsdk:"endpoints"`
}

type limits struct {
	Broker *brokerLimits `tfsdk:"broker"`
	Client *clientLimits `tfsdk:"client"`
}

// brokerLimits and clientLimits have the fields of the generated types in their order, so that Go converts one into the other.
type brokerLimits struct {
	Connections      *int64 `tfsdk:"connections"`
	ConnectsPerS     *int64 `tfsdk:"connects_per_s"`
	FiltersPerS      *int64 `tfsdk:"filters_per_s"`
	PublishBytesPerS *int64 `tfsdk:"publish_bytes_per_s"`
	PublishesPerS    *int64 `tfsdk:"publishes_per_s"`
	QueueBytes       *int64 `tfsdk:"queue_bytes"`
	RetainedMessages *int64 `tfsdk:"retained_messages"`
	Subscriptions    *int64 `tfsdk:"subscriptions"`
}

type clientLimits struct {
	ConnectsPerMin   *int64 `tfsdk:"connects_per_min"`
	PacketBytes      *int64 `tfsdk:"packet_bytes"`
	PublishBytesPerS *int64 `tfsdk:"publish_bytes_per_s"`
	PublishesPerS    *int64 `tfsdk:"publishes_per_s"`
	QueueAgeS        *int64 `tfsdk:"queue_age_s"`
	QueueBytes       *int64 `tfsdk:"queue_bytes"`
	QueueMessages    *int64 `tfsdk:"queue_messages"`
	Subscriptions    *int64 `tfsdk:"subscriptions"`
}

func limit(description string) schema.Int64Attribute {
	return schema.Int64Attribute{
		Optional:    true,
		Description: description,
		Validators:  []validator.Int64{int64validator.AtLeast(0)},
	}
}

var broker = kind[brokerModel]{
	name:     "broker",
	importID: []string{"name"},
	schema: schema.Schema{
		Description: "A broker: devices of one purpose, apart from all others. Deleting it deletes its sessions and messages.",
		Attributes: map[string]schema.Attribute{
			"name": computed("Name in the region, the first part of the host name. The server chooses it."),
			"display_name": schema.StringAttribute{
				Required:    true,
				Description: "Name for people.",
				Validators:  []validator.String{stringvalidator.UTF8LengthBetween(1, 100)},
			},
			"suspended": flag("Nobody may connect.", false),
			"limits": schema.SingleNestedAttribute{
				Optional:    true,
				Description: "Limits of the broker and of each client. A limit that is left out is the server's own.",
				Attributes: map[string]schema.Attribute{
					"broker": schema.SingleNestedAttribute{
						Optional:    true,
						Description: "Limits of all clients together.",
						Attributes: map[string]schema.Attribute{
							"connections":         limit("Connections at once."),
							"connects_per_s":      limit("CONNECTs a second."),
							"filters_per_s":       limit("Filters in SUBSCRIBE and UNSUBSCRIBE a second. Over the rate, a packet waits and its client is not read."),
							"publish_bytes_per_s": limit("Bytes (topic, properties, payload) published a second."),
							"publishes_per_s":     limit("Messages published a second."),
							"queue_bytes":         limit("Bytes that wait for all sessions."),
							"retained_messages":   limit("Retained messages."),
							"subscriptions":       limit("Subscriptions of all sessions."),
						},
					},
					"client": schema.SingleNestedAttribute{
						Optional:    true,
						Description: "Limits of each client.",
						Attributes: map[string]schema.Attribute{
							"connects_per_min":    limit("CONNECTs a minute under one client id."),
							"packet_bytes":        limit("Largest packet that a client may send, bytes."),
							"publish_bytes_per_s": limit("Bytes (topic, properties, payload) published a second."),
							"publishes_per_s":     limit("Messages published a second."),
							"queue_age_s":         limit("Longest time that a message waits for the session, seconds."),
							"queue_bytes":         limit("Bytes that wait for the session."),
							"queue_messages":      limit("Messages that wait for the session."),
							"subscriptions":       limit("Subscriptions of the session."),
						},
					},
				},
			},
			"endpoints": schema.SingleNestedAttribute{
				Computed:      true,
				Description:   "Where devices connect.",
				PlanModifiers: []planmodifier.Object{objectplanmodifier.UseStateForUnknown()},
				Attributes: map[string]schema.Attribute{
					"region":      schema.StringAttribute{Computed: true, Description: "Name of the region."},
					"host":        schema.StringAttribute{Computed: true, Description: "Host name or address, and server name (SNI)."},
					"ca_pem":      schema.StringAttribute{Computed: true, Description: "Authority that devices must trust; null: a public one."},
					"user_prefix": schema.StringAttribute{Computed: true, Description: "Prefix of user names; null: no prefix."},
					"mqtt":        endpointAttribute("MQTT over TCP, without TLS."),
					"mqtts":       endpointAttribute("MQTT over TLS."),
					"ws":          endpointAttribute("MQTT over WebSocket, without TLS."),
					"wss":         endpointAttribute("MQTT over WebSocket with TLS."),
				},
			},
		},
	},
	create: func(ctx context.Context, client *api.Client, plan *brokerModel) (string, error) {
		var made api.Broker
		body := api.NewBroker{DisplayName: plan.DisplayName.ValueString()}
		if _, err := client.Do(ctx, api.Request{Operation: api.OpCreateBroker, Body: body}, &made); err != nil {
			return "", err
		}
		plan.Name = types.StringValue(made.Name)
		if err := plan.setEndpoints(ctx, made.Endpoints); err != nil {
			return "", partialError{err}
		}
		if plan.Limits != nil {
			if err := changeBroker(ctx, client, plan); err != nil {
				return "", partialError{err}
			}
		}
		if plan.Suspended.ValueBool() {
			if err := suspendBroker(ctx, client, plan); err != nil {
				return "", partialError{err}
			}
		}
		return "", nil
	},
	read: func(ctx context.Context, client *api.Client, state *brokerModel) (string, error) {
		var found api.Broker
		request := api.Request{Operation: api.OpGetBroker, Path: []string{state.Name.ValueString()}}
		if _, err := client.Do(ctx, request, &found); err != nil {
			return "", err
		}
		state.DisplayName = types.StringValue(found.DisplayName)
		state.Suspended = types.BoolValue(found.Suspended)
		state.Limits = shownLimits(found.Limits, state.Limits)
		return "", state.setEndpoints(ctx, found.Endpoints)
	},
	update: func(ctx context.Context, client *api.Client, plan, state *brokerModel, _ string) (string, error) {
		if err := changeBroker(ctx, client, plan); err != nil {
			return "", err
		}
		if plan.Suspended.Equal(state.Suspended) {
			return "", nil
		}
		return "", suspendBroker(ctx, client, plan)
	},
	remove: func(ctx context.Context, client *api.Client, state *brokerModel, _ string) error {
		_, err := client.Do(ctx, api.Request{Operation: api.OpDeleteBroker, Path: []string{state.Name.ValueString()}, IfMatch: "*"}, nil)
		return err
	},
}

// changeBroker replaces name and limits, whatever the version: the server changes the version, too, when a spend cap is reached.
func changeBroker(ctx context.Context, client *api.Client, plan *brokerModel) error {
	all := api.Limits{Broker: &api.BrokerLimits{}, Client: &api.ClientLimits{}}
	if plan.Limits != nil && plan.Limits.Broker != nil {
		*all.Broker = api.BrokerLimits(*plan.Limits.Broker)
	}
	if plan.Limits != nil && plan.Limits.Client != nil {
		*all.Client = api.ClientLimits(*plan.Limits.Client)
	}
	body := api.BrokerChange{DisplayName: plan.DisplayName.ValueStringPointer(), Limits: &all}
	request := api.Request{Operation: api.OpChangeBroker, Path: []string{plan.Name.ValueString()}, Body: body, IfMatch: "*"}
	_, err := client.Do(ctx, request, nil)
	return err
}

func suspendBroker(ctx context.Context, client *api.Client, plan *brokerModel) error {
	operation := api.OpResumeBroker
	if plan.Suspended.ValueBool() {
		operation = api.OpSuspendBroker
	}
	_, err := client.Do(ctx, api.Request{Operation: operation, Path: []string{plan.Name.ValueString()}}, nil)
	return err
}

// shownLimits makes an object only where a limit is set, or where the state has an object already, so that `limits = {}` is no difference.
func shownLimits(found api.Limits, prior *limits) *limits {
	shown := &limits{}
	if it := found.Broker; it != nil && (*it != (api.BrokerLimits{}) || prior != nil && prior.Broker != nil) {
		broker := brokerLimits(*it)
		shown.Broker = &broker
	}
	if it := found.Client; it != nil && (*it != (api.ClientLimits{}) || prior != nil && prior.Client != nil) {
		client := clientLimits(*it)
		shown.Client = &client
	}
	if shown.Broker == nil && shown.Client == nil && prior == nil {
		return nil
	}
	return shown
}

type endpoint struct {
	Port int32  `tfsdk:"port"`
	Url  string `tfsdk:"url"`
}

type endpoints struct {
	CaPem      *string   `tfsdk:"ca_pem"`
	Host       string    `tfsdk:"host"`
	Mqtt       *endpoint `tfsdk:"mqtt"`
	Mqtts      *endpoint `tfsdk:"mqtts"`
	Region     string    `tfsdk:"region"`
	UserPrefix *string   `tfsdk:"user_prefix"`
	Ws         *endpoint `tfsdk:"ws"`
	Wss        *endpoint `tfsdk:"wss"`
}

func endpointAttribute(description string) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Computed:    true,
		Description: description + " Null: not offered.",
		Attributes: map[string]schema.Attribute{
			"port": schema.Int32Attribute{Computed: true, Description: "Port."},
			"url":  schema.StringAttribute{Computed: true, Description: "URL as most client libraries take it."},
		},
	}
}

var endpointType = map[string]attr.Type{"port": types.Int32Type, "url": types.StringType}

var endpointsType = map[string]attr.Type{
	"region": types.StringType, "host": types.StringType, "ca_pem": types.StringType, "user_prefix": types.StringType,
	"mqtt": types.ObjectType{AttrTypes: endpointType}, "mqtts": types.ObjectType{AttrTypes: endpointType},
	"ws": types.ObjectType{AttrTypes: endpointType}, "wss": types.ObjectType{AttrTypes: endpointType},
}

func (m *brokerModel) setEndpoints(ctx context.Context, found *api.Endpoints) error {
	object, err := endpointsObject(ctx, found)
	m.Endpoints = object
	return err
}

func endpointsObject(ctx context.Context, found *api.Endpoints) (types.Object, error) {
	if found == nil {
		return types.ObjectNull(endpointsType), nil
	}
	shown := func(it *api.Endpoint) *endpoint {
		if it == nil {
			return nil
		}
		return &endpoint{Port: it.Port, Url: it.Url}
	}
	object, diagnostics := types.ObjectValueFrom(ctx, endpointsType, endpoints{
		CaPem: found.CaPem, Host: found.Host, Region: found.Region, UserPrefix: found.UserPrefix,
		Mqtt: shown(found.Mqtt), Mqtts: shown(found.Mqtts), Ws: shown(found.Ws), Wss: shown(found.Wss),
	})
	if diagnostics.HasError() {
		return types.ObjectNull(endpointsType), fmt.Errorf("the endpoints of the broker: %v", diagnostics)
	}
	return object, nil
}
