// The data sources, which read objects that Terraform does not manage: a broker, and the regions.

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"millrace/terraform/provider/internal/api"
)

// data describes one kind of data source. M is the model of its state.
type data[M any] struct {
	name   string
	schema schema.Schema
	read   func(ctx context.Context, client *api.Client, model *M) error
}

type dataSource[M any] struct {
	data[M]
	client *api.Client
}

func newData[M any](of data[M]) func() datasource.DataSource {
	return func() datasource.DataSource { return &dataSource[M]{data: of} }
}

func (d *dataSource[M]) Metadata(_ context.Context, request datasource.MetadataRequest, response *datasource.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_" + d.name
}

func (d *dataSource[M]) Schema(_ context.Context, _ datasource.SchemaRequest, response *datasource.SchemaResponse) {
	response.Schema = d.schema
}

func (d *dataSource[M]) Configure(_ context.Context, request datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	if client, ok := request.ProviderData.(*api.Client); ok {
		d.client = client
	}
}

func (d *dataSource[M]) Read(ctx context.Context, request datasource.ReadRequest, response *datasource.ReadResponse) {
	var model M
	response.Diagnostics.Append(request.Config.Get(ctx, &model)...)
	if response.Diagnostics.HasError() {
		return
	}
	if err := d.read(ctx, d.client, &model); err != nil {
		response.Diagnostics.AddError("millrace_"+d.name+": cannot read it", err.Error())
		return
	}
	response.Diagnostics.Append(response.State.Set(ctx, &model)...)
}

type brokerData struct {
	Name        types.String `tfsdk:"name"`
	DisplayName types.String `tfsdk:"display_name"`
	Suspended   types.Bool   `tfsdk:"suspended"`
	IsOverCap   types.Bool   `tfsdk:"is_over_cap"`
	Endpoints   types.Object `tfsdk:"endpoints"`
}

var brokerSource = data[brokerData]{
	name: "broker",
	schema: schema.Schema{
		Description: "A broker that Terraform does not manage, and its endpoints for devices.",
		Attributes: map[string]schema.Attribute{
			"name":         schema.StringAttribute{Required: true, Description: "Name of the broker in the region."},
			"display_name": schema.StringAttribute{Computed: true, Description: "Name for people."},
			"suspended":    schema.BoolAttribute{Computed: true, Description: "Nobody may connect."},
			"is_over_cap":  schema.BoolAttribute{Computed: true, Description: "A spend cap was reached that stops the broker."},
			"endpoints": schema.ObjectAttribute{
				Computed: true, AttributeTypes: endpointsType, Description: "Where devices connect.",
			},
		},
	},
	read: func(ctx context.Context, client *api.Client, model *brokerData) error {
		var found api.Broker
		request := api.Request{Operation: api.OpGetBroker, Path: []string{model.Name.ValueString()}}
		if _, err := client.Do(ctx, request, &found); err != nil {
			return err
		}
		model.DisplayName = types.StringValue(found.DisplayName)
		model.Suspended = types.BoolValue(found.Suspended)
		model.IsOverCap = types.BoolValue(found.IsOverCap)
		endpoints, err := endpointsObject(ctx, found.Endpoints)
		model.Endpoints = endpoints
		return err
	},
}

type regionsData struct {
	Items []regionData `tfsdk:"items"`
}

type regionData struct {
	Name   string  `tfsdk:"name"`
	Domain *string `tfsdk:"domain"`
}

var regionsSource = data[regionsData]{
	name: "regions",
	schema: schema.Schema{
		Description: "The regions of the service.",
		Attributes: map[string]schema.Attribute{
			"items": schema.ListNestedAttribute{
				Computed:    true,
				Description: "All regions.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"name":   schema.StringAttribute{Computed: true, Description: "Name of the region."},
					"domain": schema.StringAttribute{Computed: true, Description: "Domain of the region; null: its brokers have no host names."},
				}},
			},
		},
	},
	read: func(ctx context.Context, client *api.Client, model *regionsData) error {
		var found api.Regions
		if _, err := client.Do(ctx, api.Request{Operation: api.OpListRegions}, &found); err != nil {
			return err
		}
		model.Items = []regionData{}
		for _, it := range found.Items {
			model.Items = append(model.Items, regionData{Name: it.Name, Domain: it.Domain})
		}
		return nil
	},
}
