"""Panels, variables and boards with the same look on all dashboards. generate.py writes them as JSON, which must be written again after
a change here. A target is (expression, legend); a legend with {{label}} names one line for each value of the label."""

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common as model
from grafana_foundation_sdk.models import dashboard as dash

# Okabe and Ito: eight colours that colour-blind people tell apart, in both themes.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A900", "#8A8A8A"]
FULL_WIDTH = 24
SOURCE = dash.DataSourceRef(type_val="prometheus", uid="${source}")
# Precedes the sources that not every region or machine has; check_dashboards.py skips panels by this text.
NEEDS = "Needs: "


def ref_id(number):
    return chr(ord("A") + number)


def queries(panel, targets, instant=False):
    for number, (expr, legend) in enumerate(targets):
        query = prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(ref_id(number))
        panel.with_target(query.instant() if instant else query.range())
    return panel.datasource(SOURCE)


def described(text, needs):
    return f"{text} {NEEDS}{needs}." if needs else text


# The legend leaves out lines that stay at zero: most reasons of a refusal never occur.
ALL_ZERO = dash.MatcherConfig(id_val="byValue", options={"reducer": "allIsZero", "op": "gte", "value": 0})
NOT_IN_LEGEND = dash.DynamicConfigValue(id_val="custom.hideFrom", value={"legend": True, "tooltip": False, "viz": False})


def graph(title, unit, text, *targets, stack=False, width=8, least=0, most=None, line=None, needs=None, fractions=False):
    """Lines over time. `least` and `most` bound the axis, `line` is a limit drawn dashed. `fractions`: values without a unit have decimals."""
    panel = timeseries.Panel().title(title).unit(unit).description(described(text, needs)).span(width).height(8)
    panel.line_width(1.5).fill_opacity(30 if stack else 8).show_points(model.VisibilityMode.NEVER)
    if least is not None:
        panel.min(least)
    panel.legend(
        common.VizLegendOptions()
        .display_mode(model.LegendDisplayMode.LIST)
        .placement(model.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs([])
    )
    panel.tooltip(
        common.VizTooltipOptions().mode(model.TooltipDisplayMode.MULTI).sort(model.SortOrder.DESCENDING)
    )
    if most is not None:
        panel.max(most)
    if unit == "short" and not fractions:
        panel.decimals(0)
    if any("{{" in legend for _, legend in targets):
        panel.overrides([dashboard.DashboardFieldConfigSourceOverrides().matcher(ALL_ZERO).properties([NOT_IN_LEGEND])])
    if stack:
        panel.stacking(common.StackingConfig().mode(model.StackingMode.NORMAL))
    if line is not None:
        steps = [dash.Threshold(value=None, color="transparent"), dash.Threshold(value=line, color=COLOURS[5])]
        panel.thresholds(dashboard.ThresholdsConfig().mode(dash.ThresholdsMode.ABSOLUTE).steps(steps))
        panel.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(model.GraphThresholdsStyleMode.DASHED)
        )
    # Series that a label names get the palette's first colours, so fixed ones beside them take the last.
    fixed = [legend for _, legend in targets if "{{" not in legend]
    colours = COLOURS if len(fixed) == len(targets) else COLOURS[::-1]
    for legend, value in zip(fixed, colours):
        panel.override_by_name(legend, [colour(value)])
    return queries(panel, targets)


def colour(value):
    return dash.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": value})


def number(title, unit, text, expr, steps=None, width=6, base=COLOURS[0], needs=None):
    """A headline number with its trend. Below the first of `steps`, which are (from, colour), it has the colour `base`."""
    panel = stat.Panel().title(title).unit(unit).description(described(text, needs)).span(width).height(4)
    panel.graph_mode(model.BigValueGraphMode.AREA).color_mode(model.BigValueColorMode.VALUE)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    steps = [(None, base), *(steps or [])]
    thresholds = [dash.Threshold(value=value, color=colour) for value, colour in steps]
    panel.thresholds(dashboard.ThresholdsConfig().mode(dash.ThresholdsMode.ABSOLUTE).steps(thresholds))
    return queries(panel, [(expr, title)])


def ranking(title, unit, text, expr, legend, width=8, needs=None):
    """Bars, longest first."""
    panel = bargauge.Panel().title(title).unit(unit).description(described(text, needs)).span(width).height(8)
    panel.orientation(model.VizOrientation.HORIZONTAL).display_mode(model.BarGaugeDisplayMode.BASIC)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).min(0)
    thresholds = [dash.Threshold(value=None, color=COLOURS[0])]
    panel.thresholds(dashboard.ThresholdsConfig().mode(dash.ThresholdsMode.ABSOLUTE).steps(thresholds))
    return queries(panel, [(expr, legend)], instant=True)


def variable(name, label, metric, of, multi=True):
    """Values of a label, offered as a choice. `of` is the label."""
    choice = dashboard.QueryVariable(name).label(label).datasource(SOURCE)
    choice.query(f"label_values({metric}, {of})").refresh(dash.VariableRefresh.ON_TIME_RANGE_CHANGED)
    choice.sort(dash.VariableSort.ALPHABETICAL_ASC)
    if multi:
        choice.multi(True).include_all(True).all_value(".*")
        choice.current(dash.VariableOption(text="All", value="$__all"))
    return choice


def board(name, title, text, *rows, variables=()):
    """Rows are (title, panels)."""
    made = dashboard.Dashboard(title).uid(f"millrace-{name}").description(text).tags(["millrace"])
    made.refresh("10s").time("now-1h", "now").timezone("browser").tooltip(dash.DashboardCursorSync.CROSSHAIR)
    made.editable().link(
        dashboard.DashboardLink("Millrace")
        .type(dash.DashboardLinkType.DASHBOARDS)
        .tags(["millrace"])
        .as_dropdown(True)
        .keep_time(True)
    )
    made.with_variable(
        dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus")
    )
    for choice in variables:
        made.with_variable(choice)
    for row, panels in rows:
        if row:
            made.with_row(dashboard.Row(row))
        for panel in panels:
            made.with_panel(panel)
    return name, made.build()
